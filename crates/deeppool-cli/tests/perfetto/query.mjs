// Queries a trace with Perfetto's own trace processor, which its pages run as WebAssembly in a web worker.
//
//     node query.mjs ENGINE TRACE SQL...
//
// ENGINE is the folder with `engine_bundle.js` and `trace_processor.wasm` of a build of Perfetto's pages. Prints a JSON
// array with the rows of each query, each an object by column. Messages are Perfetto's `TraceProcessorRpcStream`, of
// `protos/perfetto/trace_processor/trace_processor.proto`, of which only the fields below are used.

import { readFileSync } from "node:fs";
import { join } from "node:path";

const [engine, trace, ...queries] = process.argv.slice(2);
if (queries.length === 0) {
    console.error("usage: node query.mjs ENGINE TRACE SQL...");
    process.exit(2);
}

/** Fields of `TraceProcessorRpc`, and the values of its `TraceProcessorMethod`. */
const [SEQUENCE, FATAL_ERROR, REQUEST, RESPONSE, INVALID_REQUEST] = [1, 5, 2, 3, 4];
const [APPEND_DATA, QUERY, APPEND_RESULT, QUERY_RESULT, FINALIZE_RESULT] = [101, 103, 201, 203, 212];
const [METHOD_APPEND, METHOD_FINALIZE, METHOD_QUERY] = [1, 2, 3];
/** Fields of `QueryResult` and of its `CellsBatch`, and of other results. */
const [COLUMNS, QUERY_ERROR, BATCH, APPEND_ERROR, FINALIZE_ERROR] = [1, 2, 3, 2, 1];
const [CELLS, VARINTS, DOUBLES, BLOBS, STRINGS, IS_LAST] = [1, 2, 3, 4, 5, 6];
const [NULL_CELL, VARINT_CELL, DOUBLE_CELL, STRING_CELL, BLOB_CELL] = [1, 2, 3, 4, 5];

/** The bytes of a number in base 128. */
function varint(number) {
    const bytes = [];
    for (let rest = BigInt(number); ; rest >>= 7n) {
        if (rest < 128n) return [...bytes, Number(rest)];
        bytes.push(Number(rest & 127n) | 128);
    }
}

/** A field that is a number. */
function numberField(field, value) {
    return Buffer.from([...varint(field << 3), ...varint(value)]);
}

/** A field that is bytes, text or a message. */
function bytesField(field, bytes) {
    return Buffer.concat([Buffer.from([...varint((field << 3) | 2), ...varint(bytes.length)]), bytes]);
}

/** The number in base 128 at a place, and where it ends. */
function readVarint(bytes, at) {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
        const byte = bytes[at++];
        if (byte === undefined) throw new Error("a message ends within a number");
        value |= BigInt(byte & 127) << shift;
        if (byte < 128) return [value, at];
    }
}

/** The values of a message by field, in order. */
function fields(bytes) {
    const found = new Map();
    for (let at = 0; at < bytes.length; ) {
        let key, value;
        [key, at] = readVarint(bytes, at);
        const kind = Number(key & 7n);
        if (kind === 0) {
            [value, at] = readVarint(bytes, at);
        } else {
            let length = { 1: 8, 5: 4 }[kind];
            if (kind === 2) {
                [length, at] = readVarint(bytes, at);
            }
            if (length === undefined) throw new Error(`a field of the wire type ${kind}`);
            value = bytes.subarray(at, (at += Number(length)));
        }
        const field = Number(key >> 3n);
        found.set(field, [...(found.get(field) ?? []), value]);
    }
    return found;
}

/** The only value of a field, as text. */
const text = (message, field) => message.get(field)?.[0]?.toString();

/** Packed numbers of a field. */
function packed(message, field) {
    const numbers = [];
    for (const bytes of message.get(field) ?? []) {
        for (let at = 0, number; at < bytes.length; ) {
            [number, at] = readVarint(bytes, at);
            numbers.push(number);
        }
    }
    return numbers;
}

/** The cells of a batch, in order. */
function* cells(batch) {
    const varints = packed(batch, VARINTS).values();
    const doubles = Buffer.concat(batch.get(DOUBLES) ?? []);
    const blobs = (batch.get(BLOBS) ?? []).values();
    // Strings are put one behind the other, each with a zero at its end.
    const strings = (text(batch, STRINGS) ?? "").split("\0").values();
    let double = 0;
    for (const kind of packed(batch, CELLS).map(Number)) {
        if (kind === NULL_CELL) yield null;
        else if (kind === VARINT_CELL) yield Number(BigInt.asIntN(64, varints.next().value));
        else if (kind === DOUBLE_CELL) yield doubles.readDoubleLE(8 * double++);
        else if (kind === STRING_CELL) yield strings.next().value;
        else if (kind === BLOB_CELL) yield blobs.next().value.toString("base64");
        else throw new Error(`a cell of the kind ${kind}`);
    }
}

/** What a web worker has and Node has not, as far as the engine asks for it. */
class FileRequest {
    open(_method, name) {
        this.path = join(engine, name);
    }

    send() {
        const bytes = readFileSync(this.path);
        this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    }
}

/** The engine's end of a message port. It answers each message before `onmessage` returns. */
async function start() {
    const worker = { location: { href: "file:///engine/" } };
    const source = readFileSync(join(engine, "engine_bundle.js"), "utf8");
    // It refuses to run where there is a `process`. What it says is no result.
    const messages = { log: console.error, warn: console.error, error: console.error };
    const names = ["self", "location", "WorkerGlobalScope", "XMLHttpRequest", "console", "process"];
    new Function(...names, source)(worker, worker.location, Object, FileRequest, messages, undefined);
    // The engine is ready when the promises are resolved that it has made.
    await new Promise((resolve) => setTimeout(resolve));
    const port = { replies: [], postMessage: (bytes) => port.replies.push(Buffer.from(bytes)) };
    worker.onmessage({ data: port });
    return port;
}

const port = await start();
let sequence = 0;

/** The answers to a request, each a message. */
function call(method, ...rest) {
    port.replies.length = 0;
    const request = Buffer.concat([numberField(SEQUENCE, ++sequence), numberField(REQUEST, method), ...rest]);
    port.onmessage({ data: new Uint8Array(bytesField(1, request)) });
    const answers = (fields(Buffer.concat(port.replies)).get(1) ?? []).map(fields);
    for (const answer of answers) {
        const error = text(answer, FATAL_ERROR);
        if (error !== undefined || answer.has(INVALID_REQUEST)) throw new Error(error ?? "an unknown request");
        if (answer.get(RESPONSE)?.[0] !== BigInt(method)) throw new Error("the answer to another request");
    }
    if (answers.length === 0) throw new Error(`no answer to the request ${method}`);
    return answers;
}

/** The result in an answer, unless it is an error. */
function result(answer, field, errorField) {
    const message = fields(answer.get(field)?.[0] ?? Buffer.alloc(0));
    const error = text(message, errorField);
    if (error) throw new Error(error);
    return message;
}

/** The rows of a query. */
function query(sql) {
    const answers = call(METHOD_QUERY, bytesField(QUERY, bytesField(1, Buffer.from(sql))));
    const results = answers.map((answer) => result(answer, QUERY_RESULT, QUERY_ERROR));
    const columns = results.flatMap((one) => one.get(COLUMNS) ?? []).map(String);
    const batches = results.flatMap((one) => one.get(BATCH) ?? []).map(fields);
    if (batches.at(-1)?.get(IS_LAST)?.[0] !== 1n) throw new Error(`the rows of a query are cut: ${sql}`);
    const values = batches.flatMap((batch) => [...cells(batch)]);
    const rows = [];
    for (let at = 0; at < values.length; at += columns.length) {
        rows.push(Object.fromEntries(columns.map((column, index) => [column, values[at + index]])));
    }
    return rows;
}

for (const answer of call(METHOD_APPEND, bytesField(APPEND_DATA, readFileSync(trace)))) {
    result(answer, APPEND_RESULT, APPEND_ERROR);
}
for (const answer of call(METHOD_FINALIZE)) {
    result(answer, FINALIZE_RESULT, FINALIZE_ERROR);
}
console.log(JSON.stringify(queries.map(query)));
