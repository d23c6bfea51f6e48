// A client of a proxy on HTTP/2, by Node.
//
// http2_client.mjs PROXY_PORT CA CERTIFICATE KEY WHAT ARGUMENTS...; with `-` for CA there is no TLS, as towards an intermediary
//     echo PORT LENGTH FLIGHT END
//                            by classic CONNECT and, where it is offered, by connect-tcp: so many bytes there and back, of which so many
//                            at most are under way, and then the end: `half-closed` here first, or `reset` once all is back
//     reset PORT             the server resets
//     abandon PORT           this side resets
//     refused PORT...        the status and Proxy-Status of each
//     download PORT LENGTH   by classic CONNECT
// Prints what came of it, a line each, and `ready` last.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http2 from 'node:http2';

const [port, ca, cert, key, what, ...rest] = process.argv.slice(2);
const tls = ca === '-' ? {} : { ca: readFileSync(ca), cert: readFileSync(cert), key: readFileSync(key) };
const scheme = ca === '-' ? 'http' : 'https';
const session = http2.connect(`${scheme}://localhost:${port}`, tls);
session.on('error', (error) => { console.error(error); process.exit(1); });
const settings = await new Promise((resolve) => session.once('remoteSettings', resolve));

const DATA = 0x2028d7f2;
const FINAL_DATA = 0x2028d7f3;

function variable(number) {
  const bytes = Buffer.alloc(number < 64 ? 1 : number < 16384 ? 2 : 4);
  if (bytes.length === 1) bytes.writeUInt8(number);
  else if (bytes.length === 2) bytes.writeUInt16BE(number | 0x4000);
  else bytes.writeUInt32BE((number | 0x80000000) >>> 0);
  return bytes;
}

function capsule(kind, data) {
  return Buffer.concat([variable(kind), variable(data.length), data]);
}

// The bytes in DATA and FINAL_DATA of `raw`, and whether the latter ended it.
function inCapsules(raw) {
  const parts = [];
  let final = false;
  let at = 0;
  const next = () => {
    const length = 1 << (raw[at] >> 6);
    let value = raw[at] & 0x3f;
    for (let i = 1; i < length; i += 1) value = value * 256 + raw[at + i];
    at += length;
    return value;
  };
  while (at < raw.length) {
    const kind = next();
    const length = next();
    if (kind === DATA || kind === FINAL_DATA) parts.push(raw.subarray(at, at + length));
    final = kind === FINAL_DATA;
    at += length;
  }
  return [Buffer.concat(parts), final];
}

function ask(target, extended) {
  const authority = `127.0.0.1:${target}`;
  const request = session.request(extended
    ? {
      ':method': 'CONNECT', ':protocol': 'connect-tcp-12', ':scheme': 'https', ':authority': 'proxy.example',
      ':path': `/.well-known/masque/tcp/127.0.0.1/${target}/`, 'capsule-protocol': '?1',
    }
    : { ':method': 'CONNECT', ':authority': authority }, { endStream: false });
  const came = [];
  request.on('data', (data) => came.push(data));
  const answer = new Promise((resolve) => request.on('response', resolve));
  const end = new Promise((resolve) => {
    request.on('end', () => resolve('end'));
    request.on('error', () => resolve('error'));
    request.on('close', () => resolve(`closed ${request.rstCode}`));
  });
  return { request, came, answer, end };
}

async function open(target, extended = false) {
  const tunnel = ask(target, extended);
  const answer = await tunnel.answer;
  if (answer[':status'] !== 200) throw new Error(`status ${answer[':status']}`);
  return tunnel;
}

const commands = {
  async echo(target, length, flight, how) {
    const sent = Buffer.alloc(Number(length), 'abcdefghijklmnop');
    for (const extended of [false, true]) {
      if (extended && !settings.enableConnectProtocol) continue;
      const { request, came, end } = await open(target, extended);
      let arrived = 0;
      request.on('data', (data) => { arrived += data.length; });
      const early = end.then((ended) => { throw new Error(`${ended} after ${arrived} of ${sent.length}`); });
      early.catch(() => {});
      const more = () => Promise.race([once(request, 'data'), early]);
      const step = Math.min(50000, Number(flight));
      for (let at = 0; at < sent.length; at += step) {
        while (at + step - arrived > Number(flight)) await more();
        const piece = sent.subarray(at, at + step);
        request.write(extended ? capsule(DATA, piece) : piece);
      }
      if (how === 'half-closed') {
        request.end(extended ? capsule(FINAL_DATA, Buffer.alloc(0)) : undefined);
        await end;
      } else {
        while (arrived < sent.length) await more();
        request.close(http2.constants.NGHTTP2_CANCEL);
      }
      const [got, final] = extended ? inCapsules(Buffer.concat(came)) : [Buffer.concat(came), true];
      if (!got.equals(sent) || !final) throw new Error(`${got.length} of ${sent.length} came back`);
      console.log(extended ? 'echoed connect-tcp-12' : 'echoed CONNECT');
    }
  },
  async download(target, length) {
    const { request, came, end } = await open(target);
    await end;
    request.end();
    const got = Buffer.concat(came).length;
    if (got !== Number(length)) throw new Error(`${got} of ${length} came`);
    console.log(`downloaded ${got}`);
  },
  async reset(target) {
    const { request } = await open(target);
    request.write('x');
    await new Promise((resolve) => { request.on('error', resolve); request.on('close', resolve); });
    console.log(`reset ${request.rstCode}`);
  },
  async abandon(target) {
    const { request, came } = await open(target);
    request.write('x');
    while (came.length === 0) await new Promise((resolve) => { setTimeout(resolve, 5); });
    // `close` would end it first, and reset it then.
    request.destroy(new Error('abandoned'));
    await new Promise((resolve) => { request.on('close', resolve); });
    console.log('abandoned');
  },
  async refused(...targets) {
    for (const target of targets) {
      const { request, answer } = ask(target);
      const fields = await answer;
      console.log(fields[':status'], fields['proxy-status'] ?? '');
      request.end();
    }
  },
};

await commands[what](...rest);
console.log('ready');
session.destroy();
