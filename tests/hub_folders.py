"""Small models of our architecture's families, written by transformers, and ways to change their folders."""
import json

import torch
import transformers
from safetensors.torch import load_file, save_file

SMALL = dict(vocab_size=320, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=4096, rms_norm_eps=1e-5, bos_token_id=1,
             eos_token_id=2, pad_token_id=2, mask_token_id=3)
LLAMA31 = {'rope_type': 'llama3', 'rope_theta': 500_000.0, 'factor': 32.0, 'low_freq_factor': 1.0,
           'high_freq_factor': 4.0, 'original_max_position_embeddings': 512}
FAMILIES = {  # name: (class, what differs from SMALL)
    'eurobert': (transformers.EuroBertForMaskedLM, dict()),
    'eurobert, tied': (transformers.EuroBertForMaskedLM,
                       dict(tie_word_embeddings=True, rope_theta=250_000.0)),
    'llama': (transformers.LlamaForCausalLM, dict()),
    'llama, one wide kv head, biases': (transformers.LlamaForCausalLM,
                                        dict(num_key_value_heads=1, attention_bias=True, head_dim=20)),
    'llama 3.2': (transformers.LlamaForCausalLM, dict(rope_parameters=LLAMA31, tie_word_embeddings=True)),
    'mistral, no window': (transformers.MistralForCausalLM, dict(sliding_window=None)),
    'qwen2, tied': (transformers.Qwen2ForCausalLM, dict(tie_word_embeddings=True, rope_theta=1e6)),
    'qwen3': (transformers.Qwen3ForCausalLM, dict(head_dim=16))}


def make(family, folder, dtype=torch.float32, max_shard_size='1GB', **changes):
    """A random model by transformers, written to a folder; biases and norms are random, too."""
    architecture, of_family = FAMILIES[family]
    config = architecture.config_class(**SMALL | of_family | changes)
    model = architecture(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            mean = 1 if name.endswith('norm.weight') else 0
            p.normal_(mean, 0.15, generator=generator)
    model.to(dtype).save_pretrained(folder, max_shard_size=max_shard_size)
    return model.float()


def rewrite(file='config.json', /, **changes):
    def damage(folder):
        content = json.loads((folder / file).read_text()) | changes
        content = {name: value for name, value in content.items() if value != 'gone'}
        (folder / file).write_text(json.dumps(content))
    return damage


def with_tensor(name, change):
    """A function that changes a tensor of a folder; change(None) makes a new one, None takes it out."""
    def damage(folder):
        path = folder / 'model.safetensors'
        tensors = load_file(path)
        tensor = change(tensors.pop(name, None))
        if tensor is not None:
            tensors[name] = tensor
        save_file(tensors, path, {'format': 'pt'})
    return damage
