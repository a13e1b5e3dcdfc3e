"""What a run sends to a tracker, such as trackio: the lines of log.jsonl, which stays the truth.

A tracker's package is imported when it is asked for. tracker.json in the run's folder has the id by which the
tracker knows the run, and the last step that was sent to it. So a run that goes on is the same run there, no
step comes twice, and a tracker that is asked for later gets the lines from before."""
import uuid
from pathlib import Path

from nanoencoder.files import blame, read_json, write_json

PROJECT = 'nanoencoder'
SENT = 'tracker.json'


def open_trackio(run, config, run_id, is_new):
    import trackio
    resume = 'never' if is_new else 'allow'     # an older run of this name is another one
    opened = trackio.init(project=PROJECT, name=config['name'], config=config, resume=resume)
    return opened.log, opened.finish


def open_wandb(run, config, run_id, is_new):
    import wandb
    opened = wandb.init(project=PROJECT, name=config['name'], config=config, dir=run,
                        id=run_id, resume='allow', reinit='finish_previous')
    return opened.log, opened.finish


def open_tensorboard(run, config, run_id, is_new):
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(Path(run, 'tensorboard'))

    def log(numbers, step):
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        writer.flush()
    return log, writer.close


# {value of --tracker: open(the run's folder, its config.json, an id, whether the tracker has not seen it)
#                      -> (log(numbers, step), finish())}; none by default
TRACKERS = {'': None, 'trackio': open_trackio, 'wandb': open_wandb, 'tensorboard': open_tensorboard}


class Tracker:
    """A run in the tracker that its config.json names."""
    def __init__(self, run, config, total_steps):
        name = config['tracker']
        self.total_steps = total_steps
        self.path = Path(run, SENT)
        self.trackers = {}      # {name: {'id', 'step'}}; a run may change its tracker
        if self.path.exists():
            self.trackers = read_json(self.path)
        is_new = name not in self.trackers
        self.sent = self.trackers.setdefault(name, {'id': uuid.uuid4().hex[:8], 'step': 0})
        try:
            with blame(f'tracker {name}', OSError, RuntimeError, ValueError):
                self.log, self.finish = TRACKERS[name](run, config, self.sent['id'], is_new)
        except ModuleNotFoundError as error:
            raise ValueError(f'tracker {name}: {error.name} is not installed: pip install {name}') from None
        write_json(self.path, self.trackers)

    def send(self, lines):
        """Send lines of log.jsonl, but for those that were sent before. After the last step it is closed."""
        news = [line for line in lines if line['step'] > self.sent['step']]
        if not news:
            return
        # noted first: if we are killed here, the tracker lacks these steps, and has none twice
        self.sent['step'] = news[-1]['step']
        write_json(self.path, self.trackers)
        for line in news:
            numbers = {name: value for name, value in line.items() if isinstance(value, (int, float))}
            step = numbers.pop('step')
            self.log(numbers, step=step)
        if step == self.total_steps:
            self.finish()
