"""What stands behind the scripts, a room for each thing; nobody needs to read it to follow a training step.

settings      dataclasses, configs, command lines: one parser        processes   devices, torchrun's processes, signals
durable       files that survive a kill                              tokenizer   text to ids and back
prepare       text to tokens on disk                                 docs        the embedded texts and their tasks
checkpoint    a run's state, saved and read                          origin      resume, branch, weights: where a run begins
log           log.jsonl and the console                              cost        operations, memory, network, counted
huggingface   checkpoint folders of other libraries, in and out      tasks       files to rows to examples, a module a kind
probe         ridge regression on frozen features                    figures     pictures of scores and losses
paper         the published protocol's tables and models
"""
