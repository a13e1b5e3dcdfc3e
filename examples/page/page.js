// What one sees and can press. The other files stand before this one in the page.

const data = JSON.parse(document.getElementById('data').textContent);
const ids = ids_of(data.tokenizer);
const loaded = new Map();       // weights, by checkpoint
const element = id => document.getElementById(id);
const percent = share => `${Number((100 * share).toPrecision(2))}\u00a0%`;      // no line ends before the sign
const thousands = number => number.toLocaleString('en');
const TRAININGS = {
  clm: 'CLM: predict each token from those before it',
  mlm: 'MLM: fill in masked tokens from both sides',
};

// What the reader has chosen. Places count from 0 in the sentence.
const chosen = {
  model: 0,
  checkpoint: data.models[0].checkpoints.length - 1,
  causal: null,     // whether its weights were trained with the causal mask
  masked: null,     // the place of the masked token
  looking: 0,       // the place of the token whose attention is shown
  layer: 0,
};
let tokens = [];        // of the sentence, nothing masked
let shares = [];        // shares[layer][head][i][j]: how much of what token i takes comes from token j
let turns = 0;          // how many times `compute` was called

const model = () => data.models[chosen.model];
const checkpoint = () => model().checkpoints[chosen.checkpoint];

// Makes an element with attributes, and texts and other elements in it.
function make(tag, attributes, ...parts) {
  const is_drawn = ['line', 'path', 'circle', 'text'].includes(tag);
  const space = is_drawn ? 'http://www.w3.org/2000/svg' : 'http://www.w3.org/1999/xhtml';
  const made = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...parts);
  return made;
}

// How a token is written: white space becomes visible.
function shown(id) {
  if (id === data.tokenizer.mask) return 'mask';
  if (data.tokenizer.suffix.includes(id)) return 'end of text';
  return decode(id, data.tokenizer).replace(/ /g, '·').replace(/\n/g, '↵').replace(/\t/g, '→');
}

function inputs() {
  return tokens.map((token, place) => place === chosen.masked ? data.tokenizer.mask : token);
}

// ---------------------------------------------------------------------------
// The sentence

function read_text() {
  const {prefix, suffix} = data.tokenizer;
  const words = encode(element('text').value, data.tokenizer, ids);
  const room = model().context - prefix.length - suffix.length;
  tokens = [...prefix, ...words.slice(0, room), ...suffix];
  if (!words.length) tokens = [data.tokenizer.mask, ...suffix];
  if (chosen.masked >= tokens.length - suffix.length) chosen.masked = null;
  chosen.looking = Math.min(chosen.looking, tokens.length - 1);

  const buttons = tokens.map((token, place) => {
    const button = make('button', {type: 'button'});
    button.disabled = data.tokenizer.special_ids.includes(token);
    button.onclick = () => {
      chosen.masked = chosen.masked === place ? null : place;
      look(place);
      compute();
    };
    button.onmouseenter = button.onfocus = () => look(place);
    return button;
  });
  element('tokens').replaceChildren(...buttons);
  make_heads();
  shares = [];      // until they are computed
}

function look(place) {
  chosen.looking = place;
  show_attention();
}

// ---------------------------------------------------------------------------
// What the model computes

async function compute() {
  const turn = ++turns;
  const wanted = checkpoint();
  if (!loaded.has(wanted)) loaded.set(wanted, await read_weights(wanted, data.blobs));
  if (turn !== turns) return;       // the reader has chosen something else meanwhile
  const weights = loaded.get(wanted);
  const causal = element('causal').checked;
  const [hidden, shares_of_layers] = transformer(weights.model, inputs(), causal, model().sizes);
  shares = shares_of_layers;
  const place = chosen.masked - wanted.offset;      // CLM predicts a token at the place before it
  let probabilities = null;
  if (chosen.masked !== null && place >= 0) {
    [probabilities] = logits(weights, [hidden[place]]).map(softmax);
  }
  show_sentence();
  show_guesses(probabilities);
  show_attention();
  show_step(causal);
  show_curve();
}

// ---------------------------------------------------------------------------
// What is shown

function show_sentence() {
  inputs().forEach((token, place) => {
    const button = element('tokens').children[place];
    const is_masked = place === chosen.masked;
    button.textContent = shown(token);
    button.setAttribute('aria-pressed', is_masked);
    button.setAttribute('aria-label', is_masked ? `masked, was ${shown(tokens[place])}` : shown(token));
  });
}

function show_guesses(probabilities) {
  element('guesses').replaceChildren();
  if (!probabilities) {
    let advice = 'Press a token above to mask it.';
    if (chosen.masked !== null) advice = 'Weights of CLM guess from the token before; the first has none.';
    element('answer').textContent = advice;
    return;
  }
  const token = tokens[chosen.masked];
  const ranked = probabilities.map((_, id) => id).sort((a, b) => probabilities[b] - probabilities[a]);
  const rank = ranked.indexOf(token) + 1;
  const best = probabilities[ranked[0]];
  element('answer').textContent =
    `Behind the mask is ${shown(token)}. It is in place ${thousands(rank)} of ` +
    `${thousands(probabilities.length)}, with ${percent(probabilities[token])}.`;
  const rows = ranked.slice(0, 8).map(id => make('li', {class: id === token ? 'right' : ''},
    make('span', {class: 'token'}, shown(id)),
    make('span', {class: 'bar', style: `width: ${100 * probabilities[id] / Math.max(best, 0.2)}%`}),
    make('span', {class: 'share'}, percent(probabilities[id]))));
  element('guesses').append(...rows);
}

function show_step(causal) {
  const {step, objective, offset, causal: trained_causal} = checkpoint();
  const steps = `${thousands(step)} steps`;
  element('step').textContent = steps;
  element('checkpoint').setAttribute('aria-valuetext', steps);
  let sees = 'Each token sees the whole sentence.';
  if (causal) sees = 'Each token sees only itself and what stands before it.';
  const training = TRAININGS[objective] ?? objective ?? 'an unknown objective';
  const mask = trained_causal ? 'with' : 'without';
  let trained = `These weights were trained ${mask} the causal mask, by ${training}.`;
  if (step === 0) trained = 'These weights are random.';
  const guess = offset ? ' The guess comes from the token before the mask.' : '';
  element('explained').textContent = `${sees} ${trained}${guess}`;
}

// The held-out losses of all models, with a mark at the chosen checkpoint.
function show_curve() {
  const with_losses = data.models.filter(each => each.losses.length);
  element('learning').hidden = !with_losses.length;
  if (!with_losses.length) return;
  const {frequencies, sizes} = with_losses[0];
  const even = Math.log(sizes.vocab_size);      // the loss of a model that knows nothing
  const curves = data.models.map(each => [[0, even], ...each.losses]);
  const points = curves.flat();
  const last = Math.max(...points.map(([step]) => step));
  const high = Math.ceil(Math.max(...points.map(([, loss]) => loss)));
  const low = Math.floor(Math.min(...points.map(([, loss]) => loss)));
  const x = step => 24 + 326 * step / last;
  const y = loss => 12 + 200 * (high - loss) / (high - low);
  const across = loss => ({x1: x(0), x2: x(last), y1: y(loss), y2: y(loss)});

  const parts = [];
  for (let loss = low; loss <= high; loss++) {
    parts.push(make('line', {...across(loss), stroke: '#e2e8f0'}));
    parts.push(make('text', {x: 18, y: y(loss) + 4, 'text-anchor': 'end'}, loss));
  }
  parts.push(make('text', {x: x(0), y: 232}, '0'));
  parts.push(make('text', {x: x(last), y: 232, 'text-anchor': 'end'}, `${thousands(last)} steps`));
  if (frequencies) {
    parts.push(make('line', {...across(frequencies), stroke: '#475569', 'stroke-dasharray': '5 4'}));
    parts.push(make('text', {x: x(last), y: y(frequencies) - 5, 'text-anchor': 'end'},
      'knows only frequencies'));
  }
  curves.forEach((curve, number) => {
    const path = curve.map(([step, loss]) => `${x(step)} ${y(loss)}`).join(' L');
    const width = number === chosen.model ? 3 : 1.5;
    parts.push(make('path',
      {d: `M${path}`, fill: 'none', stroke: data.models[number].colour, 'stroke-width': width}));
  });

  const {step} = checkpoint();
  const {name, colour} = model();
  const [, loss] = curves[chosen.model].find(([measured]) => measured === step) ?? [];
  let words = `${name} after ${thousands(step)} steps: no loss was measured.`;
  parts.push(make('line', {x1: x(step), x2: x(step), y1: y(loss ?? high), y2: y(low), stroke: colour}));
  if (loss) {
    const is_late = step > last / 2;
    const beside = {x: x(step) + (is_late ? -8 : 10), 'text-anchor': is_late ? 'end' : 'start'};
    words = `The held-out loss of ${name} after ${thousands(step)} steps is ${loss.toFixed(2)} nats.`;
    parts.push(make('circle',
      {cx: x(step), cy: y(loss), r: 7, fill: colour, stroke: 'white', 'stroke-width': 2}));
    parts.push(make('text', {...beside, y: y(loss) - 10, class: 'loss'}, loss.toFixed(2)));
  }
  element('curve').replaceChildren(...parts);
  element('curve').setAttribute('aria-label', words);
}

// ---------------------------------------------------------------------------
// Attention: for each head the sentence again, shaded by what the outlined token takes from where

function make_heads() {
  const cards = [];
  for (let head = 0; head < model().sizes.num_attention_heads; head++) {
    const spans = tokens.map((_, place) => {
      const span = make('span', {});
      span.onmouseenter = span.onclick = () => look(place);
      return span;
    });
    const breakable = spans.flatMap(span => [span, '\u200b']);      // lines may end after each token
    cards.push(make('div', {class: 'head'},
      make('h3', {}, `Head ${head + 1}`),
      make('p', {class: 'text', 'aria-hidden': 'true'}, ...breakable),
      make('p', {'aria-live': 'polite'})));
  }
  element('heads').replaceChildren(...cards);
}

function show_attention() {
  if (shares.length === 0) return;
  const {looking} = chosen;
  const names = inputs().map(shown);
  [...element('tokens').children].forEach((button, place) => {
    button.classList.toggle('looking', place === looking);
  });
  shares[chosen.layer].forEach((of_head, head) => {
    const card = element('heads').children[head];
    const taken = of_head[looking];
    card.querySelectorAll('span').forEach((span, place) => {
      span.textContent = names[place];
      span.style.background = `rgb(29 78 216 / ${taken[place]})`;
      span.style.color = taken[place] > 0.5 ? 'white' : '';
      span.classList.toggle('looking', place === looking);
      span.classList.toggle('hidden', element('causal').checked && place > looking);
    });
    const ranked = taken.map((_, place) => place).sort((a, b) => taken[b] - taken[a]);
    const most = ranked.slice(0, 3).filter(place => taken[place] > 0.05);
    const sources = most.map(place => {
      const name = place === looking ? 'itself' : names[place];
      return `${percent(taken[place])} from ${name}`;
    });
    card.lastChild.textContent = `${names[looking]} takes ${sources.join(', ')}`;
  });
}

// ---------------------------------------------------------------------------
// What can be chosen

// Radio buttons in a fieldset.
function make_choice(name, labels, choose) {
  const radios = labels.map((label, number) => {
    const radio = make('input', {type: 'radio', name});
    radio.checked = number === chosen[name];
    radio.onchange = () => choose(number);
    return make('label', {}, radio, ` ${label}`);
  });
  const box = element(`${name}s`);
  box.replaceChildren(box.querySelector('legend'), ...radios);
}

function choose_model(number) {
  const {step} = checkpoint();
  chosen.model = number;
  const steps = model().checkpoints.map(each => each.step);
  element('steps').replaceChildren(...steps.map(each => make('span', {}, thousands(each))));
  choose_layers();
  read_text();
  element('checkpoint').max = steps.length - 1;
  choose_checkpoint(Math.max(0, steps.findLastIndex(each => each <= step)));
}

function choose_layers() {
  const count = model().sizes.num_hidden_layers;
  chosen.layer = Math.min(chosen.layer, count - 1);
  make_choice('layer', Array.from({length: count}, (_, layer) => layer + 1), layer => {
    chosen.layer = layer;
    show_attention();
  });
}

// The switch moves by itself where one comes from weights of MLM to weights of CLM, or back.
function choose_checkpoint(number) {
  const {causal} = chosen;
  chosen.checkpoint = number;
  chosen.causal = checkpoint().causal;
  element('checkpoint').value = number;
  if (chosen.causal !== causal) element('causal').checked = chosen.causal;
  compute();
}

element('text').value = data.text;
element('text').oninput = () => {
  read_text();
  compute();
};
element('causal').onchange = compute;
element('checkpoint').oninput = () => choose_checkpoint(Number(element('checkpoint').value));
make_choice('model', data.models.map(({name, training}) => `${name}: ${training}`), choose_model);
element('models').querySelectorAll('label').forEach((label, number) => {
  label.style.setProperty('--colour', data.models[number].colour);
});
chosen.masked = Math.min(2, encode(data.text, data.tokenizer, ids).length - 1);
chosen.looking = chosen.masked;
choose_model(0);
