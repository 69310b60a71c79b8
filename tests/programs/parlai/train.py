"""Trains an agent by ParlAI's loop, with defaults that the command line may replace."""

from parlai.scripts.train_model import TrainLoop, setup_args

if __name__ == "__main__":
    parser = setup_args()
    parser.set_defaults(task="talk_teachers", num_epochs=2, validation_every_n_epochs=1, log_every_n_secs=10)
    opt = parser.parse_args(print_args=False)
    valid, test = TrainLoop(opt).train()
    print("FINAL", valid["exs"], round(valid["accuracy"], 3), test["exs"])
