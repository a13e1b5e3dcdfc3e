"""MLM's plateau: a new model first learns how frequent each token is, and for hundreds of steps no more.
docs/stuck.md says how long this takes and what ends it sooner."""
import math

from data import OBJECTIVES

PAGE = 'docs/stuck.md'
WINDOW = 50     # steps: training losses are means of so many
NEAR = 0.1      # nats above or below the loss of the tokens' frequencies
LEFT = 0.3      # nats below it
LONG = 200      # steps of MLM, after which a run that is still near says so


def masked_objectives():
    """Return the names of the objectives that fill masks, with those that a script such as
    examples/whole_words.py has added by now. MDLM is left out: its losses scatter too much, for they are
    divided by ratios that may be small."""
    return [name for name, objective in OBJECTIVES.items() if objective.uses_ratio and not objective.causal]


class Plateau:
    """Follows a run's log, line by line, and knows the step at which the run `left` its plateau: the first
    where the mean of the last WINDOW losses of MLM (or MNTP) is LEFT below that of the tokens' frequencies.

    frequencies  the loss of the tokens' frequencies, in nats; None if there is no held-out text"""
    def __init__(self, frequencies):
        self.frequencies = frequencies
        self.losses = []
        self.total = 0      # of the last WINDOW losses
        self.told = False   # whether it was said that the run is on the plateau
        self.left = None

    def follow(self, line):
        """Take the next line of the log. Returns what is to be said of it, or ''. After LONG steps it is said
        that the run is on its plateau, once; and later that it has left it, once."""
        if self.left or self.frequencies is None or line['phase'] not in masked_objectives():
            return ''
        self.losses.append(line['loss'])
        self.total += line['loss']
        if len(self.losses) > WINDOW:
            self.total -= self.losses[-WINDOW - 1]
        if len(self.losses) < WINDOW:
            return ''

        if self.total < WINDOW * (self.frequencies - LEFT):
            self.left = line['step']
            return f'MLM has left its plateau at step {self.left:,}' if self.told else ''
        held_out = line.get(f'val_{line["phase"]}_loss', math.inf)
        distances = [abs(loss - self.frequencies) for loss in (self.total / WINDOW, held_out)]
        if self.told or len(self.losses) < LONG or min(distances) > NEAR:
            return ''
        self.told = True
        return (f'MLM is on its plateau: it knows little more than how frequent tokens are '
                f'({self.frequencies:.2f} nats). This is usual; {PAGE} says for how long')


def frequencies_loss(objective, config):
    """Return the loss that the frequencies of the corpus's tokens have, of those that an objective predicts:
    all, or where tokens are masked all but special ones. None if config.json does not say it."""
    about = config['corpus_meta']
    if OBJECTIVES[objective].causal:
        return about['unigram_loss']
    return about.get('ordinary_unigram_loss')


def followed(config, lines):
    """Return the Plateau of a run at the end of its log. Configs of older runs do not have the frequencies'
    loss of what MLM predicts, but of all tokens, which is nearly the same."""
    plateau = Plateau(frequencies_loss('mlm', config) or config['corpus_meta']['unigram_loss'])
    for line in lines:
        plateau.follow(line)
    return plateau


def print_guesses(run, cfg, frequencies):
    """Print, of a run that learns to fill masks, the loss of two guesses that know nothing of a token's
    neighbours."""
    if frequencies is None or not dict(cfg.phases).keys() & masked_objectives():
        return
    size = cfg.counted_sizes.vocab_size
    print(f'{run}: held-out MLM loss of a uniform guess among {size:,} tokens: {math.log(size):.2f} nats; '
          f'of token frequencies: {frequencies:.2f}')


def print_end(config, lines):
    """Print when a run has left its plateau, or that it has not. Of a run that began with trained weights, or
    that has trained less than WINDOW steps of MLM, nothing is said."""
    plateau = followed(config, lines)
    if config.get('weights_from') or len(plateau.losses) < WINDOW or plateau.frequencies is None:
        return
    if plateau.left:
        print(f'{config["name"]}: MLM left its plateau at step {plateau.left:,}')
    else:
        print(f'{config["name"]}: MLM has not left its plateau at step {lines[-1]["step"]:,}: see {PAGE}')
