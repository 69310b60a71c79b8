"""Five agents, written as those of ParlAI's users in 2018: plain, ranking, torch, Hogwild, and a reader of history."""

import copy
import json
import os
import pickle
from collections import Counter, deque

import torch
from parlai.core.agents import Agent
from parlai.core.dict import DictionaryAgent
from parlai.core.metrics import _f1_score
from parlai.core.params import class2str
from parlai.core.thread_utils import SharedTable
from parlai.core.utils import AttrDict, PaddingUtils, argsort, maintain_dialog_history, no_lock, padded_tensor
from torch import nn


class MajorityAgent(Agent):
    """Answers with the most frequent label; saves its counts as JSON, without options."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "Majority"
        self.counts = shared["counts"] if shared else Counter()
        if not shared and opt.get("model_file") and os.path.isfile(opt["model_file"]):
            with open(opt["model_file"]) as read:
                self.counts.update(json.load(read))

    def share(self):
        shared = super().share()
        shared["counts"] = self.counts
        return shared

    def act(self):
        reply = {"id": self.getID()}
        if "text" not in self.observation:
            return reply
        self.counts.update(self.observation.get("labels", ()))
        reply["text"] = self.counts.most_common(1)[0][0] if self.counts else ""
        return reply

    def save(self, path=None):
        with open(path or self.opt["model_file"], "w") as write:
            json.dump(self.counts, write)


class OverlapDictionaryAgent(DictionaryAgent):
    """A dictionary of words in lower case."""

    @staticmethod
    def add_cmdline_args(argparser):
        group = DictionaryAgent.add_cmdline_args(argparser)
        group.add_argument("--dict_class", default=class2str(OverlapDictionaryAgent))
        return group

    def tokenize(self, text, building=False):
        return super().tokenize(text.lower(), building)


class OverlapAgent(Agent):
    """Ranks candidates by the words that they share with the dialogue, rare ones first."""

    @staticmethod
    def add_cmdline_args(argparser):
        OverlapDictionaryAgent.add_cmdline_args(argparser)
        agent = argparser.add_argument_group("Overlap Arguments")
        agent.add_argument("-hist", "--history-length", type=int, default=3)

    @staticmethod
    def dictionary_class():
        return OverlapDictionaryAgent

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "OverlapAgent"
        if shared:
            self.dictionary = shared["dictionary"]
        else:
            self.dictionary = self.dictionary_class()(opt)
        self.history = {}

    def share(self):
        shared = super().share()
        shared["dictionary"] = self.dictionary
        return shared

    def observe(self, observation):
        observation = observation.copy()
        if "text" in observation:
            seen = maintain_dialog_history(
                self.history,
                observation,
                historyLength=self.opt["history_length"],
                useReplies="label_else_model",
            )
            observation["text"] = "\n".join(seen)
        self.observation = observation
        return observation

    def act(self):
        reply = {"id": self.getID()}
        candidates = self.observation.get("label_candidates")
        if not candidates:
            return reply
        words = set(self.dictionary.tokenize(self.observation["text"]))
        freqs = self.dictionary.freqs()

        def score(text):
            common = words & set(self.dictionary.tokenize(text))
            return sum(1.0 / (1 + freqs.get(word, 0)) for word in common)

        candidates = list(candidates)
        (ranked,) = argsort([score(text) for text in candidates], candidates, descending=True)
        reply["text_candidates"], reply["text"] = ranked, ranked[0]
        return reply


class BagAgent(Agent):
    """Classifies texts by a torch module; batches by `PaddingUtils`, options saved by pickle."""

    @staticmethod
    def add_cmdline_args(argparser):
        DictionaryAgent.add_cmdline_args(argparser)
        agent = argparser.add_argument_group("Bag Arguments")
        agent.add_argument("-hs", "--hiddensize", type=int, default=16, help="size of the embeddings")
        agent.add_argument("-lr", "--learningrate", type=float, default=0.1)
        agent.add_argument("--no-cuda", action="store_true", default=False)
        agent.add_argument("--gpu", type=int, default=-1)

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "Bag"
        self.episode_done = True
        if not shared:
            opt["cuda"] = not opt["no_cuda"] and torch.cuda.is_available()
            self.dict = DictionaryAgent(opt)
            torch.manual_seed(1)
            self.table = nn.Embedding(len(self.dict), opt["hiddensize"], padding_idx=0)
            self.out = nn.Linear(opt["hiddensize"], len(self.dict))
            self.loss = nn.CrossEntropyLoss()
            modules = {"table": self.table, "out": self.out}
            self.modules = modules
            self.optims = {
                name: torch.optim.Adam(each.parameters(), lr=opt["learningrate"])
                for name, each in modules.items()
            }
            if opt.get("model_file") and os.path.isfile(opt["model_file"]):
                states = torch.load(opt["model_file"])
                for name, each in modules.items():
                    each.load_state_dict(states[name])
        self.reset()

    def reset(self):
        self.observation = None
        self.episode_done = True

    def observe(self, observation):
        observation = copy.deepcopy(observation)
        if not self.episode_done and "text" in observation:
            observation["text"] = self.observation["text"] + "\n" + observation["text"]
        self.observation = observation
        self.episode_done = observation["episode_done"]
        return observation

    def forward(self, xs):
        return self.out(self.table(torch.LongTensor(xs)).mean(1))

    def act(self):
        return self.batch_act([self.observation])[0]

    def batch_act(self, observations):
        batch_reply = [{"id": self.getID()} for _ in range(len(observations))]
        end, null = self.dict[self.dict.end_token], self.dict[self.dict.null_token]
        xs, ys, labels, valid_inds, _, _ = PaddingUtils.pad_text(
            observations, self.dict, end_idx=end, null_idx=null, eval_labels=False
        )
        if xs is None:
            return batch_reply
        scores = self.forward(xs)
        if ys is not None:
            loss = self.loss(scores, torch.LongTensor([y[0] for y in ys]))
            for optim in self.optims.values():
                optim.zero_grad()
            loss.backward()
            for optim in self.optims.values():
                optim.step()
            for index in valid_inds:
                batch_reply[index]["metrics"] = {"loss": loss.item()}
        predictions = [[int(best), end] for best in scores.max(1)[1]]
        PaddingUtils.map_predictions(
            predictions, valid_inds, batch_reply, observations, self.dict, end, report_freq=0, labels=labels
        )
        return batch_reply

    def save(self, path=None):
        path = self.opt.get("model_file") if path is None else path
        if path:
            with open(path, "wb") as write:
                torch.save({name: each.state_dict() for name, each in self.modules.items()}, write)
            with open(path + ".opt", "wb") as handle:
                pickle.dump(self.opt, handle, protocol=pickle.HIGHEST_PROTOCOL)


class TallyAgent(Agent):
    """Counts words in shared memory, with a lock if there are several workers."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "Tally"
        if shared:
            self.table, self.weights = shared["table"], shared["weights"]
        else:
            table = {"examples": 0, "words": 0, "last": ""}
            self.table = SharedTable(table) if opt.get("numthreads", 1) > 1 else table
            self.weights = torch.zeros(4)
            self.weights.share_memory_()

    def share(self):
        shared = super().share()
        shared.update(table=self.table, weights=self.weights)
        return shared

    def _lock(self):
        return self.table.get_lock() if hasattr(self.table, "get_lock") else no_lock()

    def act(self):
        text = self.observation.get("text")
        if text is None:
            return {"id": self.getID()}
        words = text.split()
        with self._lock():
            self.table["examples"] += 1
            self.table["words"] += len(words)
            self.table["last"] = words[-1]
            self.weights += 1
        return {"id": self.getID(), "text": words[-1]}


class MemoryAgent(Agent):
    """Answers with the label of the most similar text that it has seen; similarity by word vectors."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "Memory"
        self.settings = AttrDict(size=opt.get("memsize", 200))
        self.memory = shared["memory"] if shared else deque(maxlen=self.settings.size)
        self.best = None

    @staticmethod
    def add_cmdline_args(argparser):
        group = argparser.add_argument_group("Memory Arguments")
        group.add_argument("--memsize", type=int, default=200)

    def share(self):
        return dict(super().share(), memory=self.memory)

    def receive_metrics(self, metrics_dict):
        self.best = max(self.best or 0, metrics_dict["accuracy"])

    def act(self):
        seen = self.observation
        if "text" not in seen:
            return {"id": self.getID()}
        scores = [_f1_score(seen["text"], [text]) for text, _ in self.memory]
        if seen.get("labels"):
            self.memory.append((seen["text"], seen["labels"][0]))
        if not scores:
            return {"id": self.getID(), "text": ""}
        rows, lengths = padded_tensor([[int(1000 * score)] for score in scores])
        best = int(rows[:, 0].max(0)[1])
        assert lengths == [1] * len(scores)
        return {"id": self.getID(), "text": self.memory[best][1]}
