"""A world of a program's own with its own agents, without a task."""

from parlai.core.agents import Agent
from parlai.core.params import ParlaiParser
from parlai.core.worlds import DialogPartnerWorld, World, display_messages, validate


class Guesser(Agent):
    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "guesser"
        self.low, self.high = 0, opt["most"]

    def observe(self, observation):
        self.observation = observation
        middle = (self.low + self.high) // 2
        if observation.get("text") == "more":
            self.low = middle + 1
        elif observation.get("text") == "less":
            self.high = middle
        return observation

    def act(self):
        return {"id": self.id, "text": str((self.low + self.high) // 2), "episode_done": False}


class Judge(Agent):
    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id, self.number = "judge", opt["number"]

    def act(self):
        guess = int(self.observation["text"])
        text = "right" if guess == self.number else "more" if guess < self.number else "less"
        return {
            "id": self.id,
            "text": text,
            "reward": float(text == "right"),
            "episode_done": text == "right",
        }


class GuessWorld(World):
    def __init__(self, opt, agents, shared=None):
        super().__init__(opt, agents, shared)
        self.acts = [None] * len(agents)
        self.done = False

    def parley(self):
        guesser, judge = self.agents
        self.acts[0] = guesser.act()
        judge.observe(validate(self.acts[0]))
        self.acts[1] = judge.act()
        guesser.observe(validate(self.acts[1]))
        self.done = self.acts[1]["episode_done"]
        self.update_counters()

    def episode_done(self):
        return self.done


parser = ParlaiParser(False, False)
parser.add_argument("--most", type=int, default=100)
parser.add_argument("--number", type=int, default=37)
opt = parser.parse_args(print_args=False)
with GuessWorld(opt, [Guesser(opt), Judge(opt)]) as world:
    while not world.episode_done():
        world.parley()
    print(display_messages(world.get_acts()))
    print("FINAL", world.total_parleys, issubclass(DialogPartnerWorld, World))
