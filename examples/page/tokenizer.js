// Byte-level BPE: text to token ids and back, as in tokenizer.json. `alphabet` has a visible character for
// each of the 256 bytes, and tokens are written in these characters: a space is Ġ.

// The ids of a text. `ids` is a Map {token: id}, in which a token that was learnt earlier has a smaller id.
function encode(text, tokenizer, ids) {
  const words = text.match(new RegExp(tokenizer.pattern, 'gu')) ?? [];
  return words.flatMap(word => {
    const bytes = new TextEncoder().encode(word);
    const characters = Array.from(bytes, byte => tokenizer.alphabet[byte]);
    return merge(characters, ids).map(part => ids.get(part));
  });
}

// Joins the two neighbours whose union was learnt first, again and again, until no union is a token. A word
// that is a token needs none of that.
function merge(parts, ids) {
  const word = parts.join('');
  if (ids.has(word)) return [word];
  for (;;) {
    let best = -1;
    let smallest = Infinity;
    for (let i = 0; i + 1 < parts.length; i++) {
      const id = ids.get(parts[i] + parts[i + 1]);
      if (id < smallest) {
        smallest = id;
        best = i;
      }
    }
    if (best < 0) return parts;
    parts.splice(best, 2, parts[best] + parts[best + 1]);
  }
}

// The text of a token. A token may be a part of a character, which is shown as a question mark.
function decode(id, tokenizer) {
  const name = tokenizer.tokens[id];
  if (tokenizer.special_ids.includes(id)) return name;
  const bytes = Array.from(name, character => tokenizer.alphabet.indexOf(character));
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

// The Map that `encode` takes. Special tokens are not in it, so no text can write one.
function ids_of(tokenizer) {
  const ids = new Map();
  tokenizer.tokens.forEach((name, id) => {
    if (name && !tokenizer.special_ids.includes(id)) ids.set(name, id);
  });
  return ids;
}
