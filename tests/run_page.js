// node tests/run_page.js page.html < asked.json: token ids and logits as a written page computes them.
const fs = require('fs');
const vm = require('vm');

const page = fs.readFileSync(process.argv[2], 'utf8');
const scripts = [...page.matchAll(/<script[^>]*>([^]*?)<\/script>/g)].map(match => match[1]);
const data = JSON.parse(scripts[0]);
vm.runInThisContext(scripts[1]);    // tokenizer.js
vm.runInThisContext(scripts[2]);    // weights.js
vm.runInThisContext(scripts[3]);    // model.js

async function main() {
  const {texts, asked} = JSON.parse(fs.readFileSync(0, 'utf8'));
  const ids = ids_of(data.tokenizer);
  const found = {ids: texts.map(text => encode(text, data.tokenizer, ids)), logits: []};
  found.decoded = found.ids.map(row => row.map(id => decode(id, data.tokenizer)).join(''));
  for (const {model, checkpoint, inputs} of asked) {
    const {sizes, checkpoints} = data.models[model];
    const weights = await read_weights(checkpoints[checkpoint], data.blobs);
    found.logits.push(inputs.map(({tokens, causal, places}) => {
      const [hidden, shares] = transformer(weights.model, tokens, causal, sizes);
      const rows = logits(weights, places.map(place => hidden[place]));
      return {shares, logits: rows.map(row => row.map(value => Number(value.toFixed(6))))};
    }));
  }
  process.stdout.write(JSON.stringify(found));
}

main();
