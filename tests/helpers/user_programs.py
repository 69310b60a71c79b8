"""Programs as users write them, for DyNet and for this package alike: losses of several updates."""

import numpy as np


def fill(m, seed=0):
    """Give all parameters values that both have."""
    draw = np.random.RandomState(seed)
    for p in m.parameters_list():
        p.set_value(draw.uniform(-0.5, 0.5, p.shape()))
    for table in m.lookup_parameters_list():
        for row in range(table.shape()[0]):
            table.init_row(row, draw.uniform(-0.5, 0.5, table.shape()[1:]).tolist())


def stack_lstm(dy):
    """A network over a stack: words are shifted, pairs are joined and taken off by `prev`."""
    m = dy.ParameterCollection()
    words, actions = m.add_lookup_parameters((9, 5)), m.add_parameters((3, 6))
    stack, join, bias = dy.VanillaLSTMBuilder(2, 5, 6, m), m.add_parameters((5, 10)), m.add_parameters((5,))
    fill(m)
    trainer, losses = dy.AdamTrainer(m, 0.02), []
    sentences = [([1, 2, 3], "SSRSR"), ([4, 5, 6, 7], "SSSRRSR"), ([8, 1], "SSR"), ([2, 2, 2, 0], "SSRSSRR")]

    def parse(sentence, gold):
        state, held, rest, found = stack.initial_state(), [], list(sentence), []
        for action in gold:
            scores = actions * (state.output() if held else dy.zeros(6))
            found.append(dy.pickneglogsoftmax(scores, "SR".index(action) if len(rest) % 2 else 2))
            if action == "S":
                held.append(words[rest.pop(0)])
            else:
                right, left, state = held.pop(), held.pop(), state.prev().prev()
                held.append(dy.rectify(dy.affine_transform([bias, join, dy.concatenate([left, right])])))
            state = state.add_input(held[-1])
        return found

    for _ in range(4):
        dy.renew_cg()
        loss = dy.esum([each for sentence, gold in sentences for each in parse(sentence, gold)])
        losses.append(loss.value())
        loss.backward()
        trainer.update()
    return losses


def beam_search(dy):
    """A decoder trained by force, then a beam whose rejected continuations are taken back out of the graph."""
    m = dy.ParameterCollection()
    words, out = m.add_lookup_parameters((6, 4)), m.add_parameters((6, 5))
    bias, decoder = m.add_parameters((6,)), dy.GRUBuilder(1, 4, 5, m)
    fill(m, 1)
    trainer, found = dy.MomentumSGDTrainer(m, 0.1, 0.9), []
    targets = [[1, 2, 3, 5], [1, 3, 2, 5], [4, 4, 5], [2, 1, 5]]

    def scores(state):
        return dy.log_softmax(dy.affine_transform([bias, out, state.output()]))

    for _ in range(3):
        dy.renew_cg()
        losses = []
        for target in targets:
            state = decoder.initial_state()
            for before, word in zip([0, *target], target):
                state = state.add_input(words[before])
                losses.append(-dy.pick(scores(state), word))
        loss = dy.esum(losses)
        found.append(loss.value())
        loss.backward()
        trainer.update()
    dy.renew_cg()
    # DyNet loses parameters that enter behind a checkpoint
    scores(decoder.initial_state().add_input(words[0]))
    beam = [(0.0, [0], decoder.initial_state())]
    for _ in range(4):
        tried = []
        for total, path, state in beam:
            dy.cg_checkpoint()
            ahead = scores(state.add_input(words[path[-1]])).npvalue()
            dy.cg_revert()
            tried += [(total + float(ahead[word]), [*path, word], state) for word in range(6)]
        best = sorted(tried, key=lambda each: -each[0])[:3]
        beam = [(total, path, state.add_input(words[path[-2]])) for total, path, state in best]
        found += [total for total, _, _ in beam]
    return found


PROGRAMS = {"stack_lstm": stack_lstm, "beam_search": beam_search}
