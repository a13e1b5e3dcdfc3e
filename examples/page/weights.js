// Unpacks the weights of a checkpoint into a tree, weights.model.layers[0].mlp.up_proj.weight. page.py has
// packed vectors as they are, and matrices as whole numbers from -127 to 127, times a step.
async function read_weights(checkpoint, blobs) {
  const packed = Uint8Array.from(atob(blobs[checkpoint.blob]), character => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const integers = new Int8Array(await new Response(stream).arrayBuffer());
  const weights = {};
  let start = 0;
  for (const {name, values, shape, step} of checkpoint.tensors) {
    let tensor = values;
    if (shape) {
      const [rows, columns] = shape;
      tensor = [];
      for (let row = 0; row < rows; row++) {
        tensor.push(Float32Array.from(integers.subarray(start, start + columns), value => value * step));
        start += columns;
      }
    }
    const path = name.split('.');
    const last = path.pop();
    let place = weights;
    for (const part of path) place = place[part] ??= {};
    place[last] = tensor;
  }
  return weights;
}
