import asyncio
import collections
import dataclasses

from dpmodule.streams import BaseAsyncExtendableStream


async def main():
    @dataclasses.dataclass
    class SortedExtendableStream(BaseAsyncExtendableStream):
        queue: collections.deque = dataclasses.field(init=False, default_factory=collections.deque)

        def _async_iterator_put_impl(self, data):
            self.queue.append(data)

        async def _async_iterator_next_impl(self):
            return self.queue.popleft()

        def _empty_impl(self) -> bool:
            return len(self.queue) == 0

    stream = SortedExtendableStream()

    async def producer(stream):
        try:
            for i in range(10):
                stream.put(i)
        except Exception as ex:
            stream.throw(ex)
            raise
        else:
            stream.stop()

    loop = asyncio.get_running_loop()
    loop.create_task(producer(stream))
    async for x in stream:
        print(x)


asyncio.run(main())
