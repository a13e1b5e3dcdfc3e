"""The model that a task is given: what run.json says of it, and how many tokens of a text it reads."""
import sys
from dataclasses import asdict, dataclass

from nanoencoder import huggingface, sentence_encoders
from nanoencoder.settings import may_change, setting
from nanoencoder.tokenizer import is_hub_id


@dataclass(frozen=True)
class Scoring:
    """Which model is scored on a task, where it is computed, and what its predictions are called."""
    model: str = may_change('')  # a checkpoint, a hub id, or a run: its newest checkpoint
    name: str = may_change('')  # of the model in predictions; empty: its run's
    variant: str = may_change('')  # +<variant> is added to that name and to its study's row
    tokens_at_once: int = may_change(16_384, 1)  # a batch takes several passes
    device: str = may_change('auto', choices=('auto', 'cpu', 'cuda', 'mps'))
    dtype: str = setting('auto', choices=('auto', 'fp32', 'bf16'))  # auto: bf16 where CUDA has it
    predictions: str = may_change('predictions')


def describe(checkpoint, sizes, cfg, is_untrained=False):
    """Return (a model's name in predictions, what run.json says of it).

    The name is cfg.name, or its run's: with -<step> before the end of the run, and +<cfg.variant> where one
    is given."""
    tokenizer = checkpoint.tokenizer()
    sizes = asdict(sizes) | {'max_position_embeddings': checkpoint.context}
    sizes |= {f'{role}_token_id': number for role, number in tokenizer.ids.items()}
    about = {
        'tokenizer': tokenizer.fingerprint(),
        'sizes': sizes,
        'pretraining': None,
        'checkpoint': 'none'}
    if is_hub_id(cfg.model):
        about['commit'] = checkpoint.folder.name    # that the hub's revision was
    suffix = f'+{cfg.variant}' if cfg.variant else ''
    if is_untrained:
        return (cfg.name or 'untrained') + suffix, about

    past = checkpoint.state.get('pretraining')
    # not checkpoint.folder: a hub id's local folder bears the name of a commit
    run = huggingface.run_of_checkpoint(cfg.model).name
    if past:
        total = sum(steps for _, steps in past['phases']) * past.get('repeat', 1)
        if past['step'] < total:
            run = f'{run}-{past["step"]}'
        past = past | {'fixed': checkpoint.state['fixed']}
        if past['row']:
            past['row'] += suffix
    about |= {'pretraining': past, 'checkpoint': checkpoint.digest()}
    return (cfg.name or run) + suffix, about


def reading_length(cfg, checkpoint):
    """Return how many tokens of a text are read: max_length, or the authors' share of the context, or as many
    as a sentence encoder says that it reads."""
    tokenizer = checkpoint.tokenizer()
    longest = sentence_encoders.read_longest(checkpoint.folder, checkpoint.context)
    max_length = cfg.max_length or longest or round(0.99 * checkpoint.context)
    least = 1 + len(tokenizer.prefix) + len(tokenizer.suffix)
    if not least <= max_length <= checkpoint.context:
        raise ValueError(f'max_length {max_length}: the model reads {least} to {checkpoint.context} tokens')
    return max_length


def print_prompts(cfg, kind, folder):
    """Print the task's templates and the prompts that a sentence encoder names: nothing but the templates is
    put before a text."""
    if not sentence_encoders.read_modules(folder):
        return
    prompts, default, similarity = sentence_encoders.read_prompts(folder)
    templates = ', '.join(f'{name} {getattr(cfg, name)!r}' for name in kind.templates)
    named = ', '.join(f'{name} {prompt!r:.200}' for name, prompt in prompts.items() if prompt) or 'none'
    if default:
        named += f', {default!r} is the default'
    print(f'{cfg.dataset}: templates: {templates}\n{cfg.model}: prompts: {named}')
    if kind.head == 'vector' and similarity != 'cosine':
        print(f'{cfg.model}: it ranks by {similarity!r:.80}, this program by cosines', file=sys.stderr)
