"""What stands behind the scripts, a room for each thing; nobody needs it to follow a training step.

settings      dataclasses, configs, command lines: one parser
processes     devices, torchrun's processes, signals
durable       files that survive a kill
tokenizer     text to ids and back
prepare       text to tokens on disk
shards        what a corpus must hold, and counting it again
docs          the embedded texts and their tasks
checkpoint    a run's state, saved and read
origin        resume, branch, weights: where a run begins
log           log.jsonl, the console, config.json
cost          operations, memory, network, counted before a run
huggingface   checkpoint folders of other libraries, in and out
tasks/        files to rows to examples; a module a kind of task
runs          what a fine-tuning leaves on disk
probe         ridge regression on frozen features
metrics       entities, answers, rankings; a table of kinds
intervals     what chance could have changed: the bootstrap, seeds, contrasts of models
protocols     runs to selection and scores: the field's and the paper's
predictions   runs on disk, and their scores
paper         the published claims, tables and models
losses        logs of pretraining, compared
evidence      a study's losses, contrasts and ladders, and rules for a claim
report        a study's page, and the paper's numbers judged
figures       pictures of scores and losses
"""
