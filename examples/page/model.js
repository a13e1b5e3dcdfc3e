// The transformer of model.py in JavaScript, to be read beside it: the same steps, with the same names and
// without a library. It computes one text, which is one segment.
//
// A matrix is an array of rows, a row an array of numbers. Sizes in comments: N tokens, V vocabulary,
// d hidden, H heads, K key/value heads, h head size.

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

// torch's F.linear: (N, out) of x (N, in) and weight (out, in).
function linear(x, weight) {
  return x.map(row => weight.map(weights => dot(row, weights)));
}

function add(x, y) {
  return x.map((row, n) => row.map((value, i) => value + y[n][i]));
}

function transpose(x) {
  return x[0].map((_, i) => x.map(row => row[i]));
}

function softmax(scores) {
  const largest = Math.max(...scores);
  const exp = scores.map(score => Math.exp(score - largest));
  const total = exp.reduce((sum, value) => sum + value);
  return exp.map(value => value / total);
}

function silu(value) {
  return value / (1 + Math.exp(-value));
}

function rms_norm(x, gain, sizes) {
  return x.map(row => {
    const mean_square = dot(row, row) / row.length;
    const root = Math.sqrt(mean_square + sizes.rms_norm_eps);
    return row.map((value, i) => value / root * gain[i]);
  });
}

// The angles of RoPE, (N, h): position / theta ** (2k / h). A head's halves hold the same ones.
function rope(N, sizes) {
  const h = sizes.head_size;
  const angles = [];
  for (let position = 0; position < N; position++) {
    const half = [];
    for (let k = 0; k < h / 2; k++) half.push(position / sizes.rope_theta ** (2 * k / h));
    angles.push([...half, ...half]);
  }
  return angles;
}

// Elements j and j + h / 2 of a row of x (N, h) are a pair, and turn together.
function apply_rope(x, angles) {
  return x.map((row, n) => {
    const half = row.length / 2;
    const turned = [...row.slice(half).map(value => -value), ...row.slice(0, half)];   // by 90 degrees
    return row.map((value, i) => value * Math.cos(angles[n][i]) + turned[i] * Math.sin(angles[n][i]));
  });
}

// (heads, N, h) of x (N, heads * h)
function split_heads(x, h) {
  const heads = [];
  for (let start = 0; start < x[0].length; start += h) heads.push(x.map(row => row.slice(start, start + h)));
  return heads;
}

// The queries (H, N, h), keys (K, N, h) and values (K, N, h) of a layer.
function attention(self_attn, x, angles, sizes) {
  let q = split_heads(linear(x, self_attn.q_proj.weight), sizes.head_size);
  let k = split_heads(linear(x, self_attn.k_proj.weight), sizes.head_size);
  const v = split_heads(linear(x, self_attn.v_proj.weight), sizes.head_size);
  if (sizes.qk_norm) {
    q = q.map(head => rms_norm(head, self_attn.q_norm.weight, sizes));
    k = k.map(head => rms_norm(head, self_attn.k_norm.weight, sizes));
  }
  q = q.map(head => apply_rope(head, angles));
  k = k.map(head => apply_rope(head, angles));
  return [q, k, v];
}

// Returns what each token takes from all, (N, H * h), and the shares: shares[head][i][j] is how much of what
// token i takes comes from token j. The causal mask is one condition: nothing comes from a later token.
function attend(q, k, v, causal) {
  const sharing = q.length / k.length;      // heads that share a key
  const shares = [];
  const attended = [];
  q.forEach((queries, head) => {
    const keys = k[Math.floor(head / sharing)];
    const values = transpose(v[Math.floor(head / sharing)]);
    shares.push(queries.map((query, i) => {
      const scores = keys.map((key, j) => {
        if (causal && j > i) return -Infinity;
        return dot(query, key) / Math.sqrt(key.length);
      });
      return softmax(scores);
    }));
    attended.push(linear(shares[head], values));      // (N, h)
  });
  const joined = attended[0].map((_, n) => attended.flatMap(head => head[n]));
  return [joined, shares];
}

function mlp(weights, x) {
  const gate = linear(x, weights.gate_proj.weight);
  const up = linear(x, weights.up_proj.weight);
  const inner = gate.map((row, n) => row.map((value, i) => silu(value) * up[n][i]));
  return linear(inner, weights.down_proj.weight);
}

// Returns the hidden states (N, d) of tokens, and shares[layer][head][i][j].
function transformer(weights, tokens, causal, sizes) {
  const angles = rope(tokens.length, sizes);
  const shares = [];
  let x = tokens.map(token => Array.from(weights.embed_tokens.weight[token]));
  for (const layer of Object.values(weights.layers)) {
    let normed = rms_norm(x, layer.input_layernorm.weight, sizes);
    const [q, k, v] = attention(layer.self_attn, normed, angles, sizes);
    const [attended, shares_of_layer] = attend(q, k, v, causal);
    shares.push(shares_of_layer);
    x = add(x, linear(attended, layer.self_attn.o_proj.weight));
    normed = rms_norm(x, layer.post_attention_layernorm.weight, sizes);
    x = add(x, mlp(layer.mlp, normed));
  }
  return [rms_norm(x, weights.norm.weight, sizes), shares];
}

// The logits (N, V) of hidden states. Where embeddings are tied, their table is the head.
function logits(weights, hidden) {
  const head = weights.lm_head ?? weights.model.embed_tokens;
  return linear(hidden, head.weight);
}
