"""Small encoders of other architectures, and their tokenizers, by transformers."""
import tokenizers
import transformers

from conftest import texts
from nanoencoder import peers
from nanoencoder.files import read_json

ROWS = 900     # embeddings, a few more than tokens
COMMON = dict(vocab_size=ROWS, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
              num_attention_heads=4, max_position_embeddings=130, pad_token_id=0)
SMALL = COMMON | dict(dim=32, embedding_size=32, n_layers=2, n_heads=4, hidden_dim=48, emb_dim=32,
                      entity_vocab_size=10, entity_emb_size=32, head_dim=8)
OF_FAMILY = {   # as published models have it, where the library's own defaults differ
    'deberta-v2': {'pos_att_type': ['p2c', 'c2p'], 'relative_attention': True},
    'esm': {'token_dropout': True, 'mask_token_id': 3, 'position_embedding_type': 'rotary'},
    'longformer': {'attention_window': [64, 64]}, 'xmod': {'default_language': 'en_XX'},
    'modernbert': {'layer_types': ['full_attention', 'sliding_attention'], 'local_attention': 16},
    'modernbert-decoder': {'layer_types': ['full_attention', 'sliding_attention']}}
FAMILIES = 'bert', 'roberta', 'deberta-v2', 'modernbert'
TRAINED = {'roberta': transformers.RobertaTokenizer, 'deberta-v2': transformers.DebertaV2Tokenizer}


def byte_level():
    """A tokenizer of ModernBERT's kind: runs of spaces are tokens, and not special."""
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.normalizer = tokenizers.normalizers.NFC()
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    roles = {f'{name}_token': f'[{name.upper()}]' for name in ('unk', 'cls', 'sep', 'pad', 'mask')}
    core.train_from_iterator(texts()[:60], tokenizers.trainers.BpeTrainer(
        vocab_size=800, special_tokens=list(roles.values()),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    core.add_tokens(['  ', '    '])
    core.add_special_tokens(['<|endoftext|>'])      # which it has, and which ends nothing
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single='[CLS] $A [SEP]', special_tokens=[('[CLS]', 1), ('[SEP]', 2)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **roles)


def word_pieces():
    """BERT's, of letters and a few words. The library's trainer makes another one each time."""
    pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the', 'of', 'array', '##s']
    for letter in sorted(set(''.join(texts()[:60]).lower())):
        pieces += [letter, f'##{letter}']
    distinct = dict.fromkeys(pieces)
    return transformers.BertTokenizer({piece: i for i, piece in enumerate(distinct)})


def small_config(family):
    """transformers' config of a small model, with the sizes that its family knows."""
    config = transformers.AutoConfig.for_model(family)
    sizes = {name: value for name, value in SMALL.items() if name in dir(config)}
    for name, value in (sizes | OF_FAMILY.get(family, {})).items():
        setattr(config, name, value)
    return config


def another(config):
    return lambda folder: transformers.AutoModel.from_config(config).save_pretrained(folder)


def opened(folder):
    return peers.open_peer(folder, read_json(folder / 'config.json'), str(folder))
