// A gateway between a client and a server, each in a network namespace that goes with its process: for web-check.mjs, as root.
import { execFileSync, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

/** A download of 200 kB/s, so that the flow stands while the page is looked at. */
const SERVER = `require("node:net").createServer((peer) => {
  const timer = setInterval(() => peer.write(Buffer.alloc(20000)), 100);
  peer.on("error", () => {}).on("close", () => clearInterval(timer));
}).listen(5001, () => console.log("ready"))`;
const CLIENT = `const peer = require("node:net").connect(5001, "10.77.2.2", () => console.log("ready"));
peer.on("error", (error) => { console.error(error.message); process.exit(1); }).resume()`;

/** Starts it with its configuration in `folder` and its control socket at `control`; `end` takes all down. */
export async function start(program, folder, control) {
  const children = [];
  const begin = (command, args, word) => new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "inherit"] });
    children.push(child);
    child.stdout.on("data", (data) => { if (!word || `${data}`.includes(word)) resolve(child); });
    child.once("exit", (code) => reject(new Error(`${command} ${args.join(" ")}: ended with ${code}`)));
  });
  const end = async () => {
    for (const child of children.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const gone = new Promise((resolve) => child.once("exit", resolve));
      child.kill();
      await gone;
    }
  };
  try {
    const hosts = [];
    for (let i = 0; i < 3; i++) hosts.push(await begin("unshare", ["--net", "sh", "-c", "echo ready; exec sleep 600"], "ready"));
    const [client, gateway, server] = hosts.map(({ pid }) => `${pid}`);
    const within = (pid, ...words) => ["--target", pid, "--net", ...words];
    const run = (pid, line) => execFileSync("nsenter", within(pid, ...line.split(" ")));
    run(gateway, `ip link add lan0 type veth peer name eth0 netns ${client}`);
    run(gateway, `ip link add sat0 type veth peer name eth0 netns ${server}`);
    for (const [pid, device, address] of [[gateway, "lan0", "10.77.1.1/24"], [gateway, "sat0", "10.77.2.1/24"], [client, "eth0", "10.77.1.2/24"], [server, "eth0", "10.77.2.2/24"]]) {
      run(pid, `ip address add ${address} dev ${device}`);
      run(pid, `ip link set ${device} up`);
      run(pid, "ip link set lo up");
    }
    run(client, "ip route add default via 10.77.1.1");
    run(server, "ip route add default via 10.77.2.1");
    run(gateway, "sysctl -qw net.ipv4.ip_forward=1");
    const config = join(folder, ".gateway.toml");
    const text = `control = "${control}"\nmetrics = "off"\n[lan]\ninterface = "lan0"\n[sat]\ninterface = "sat0"\ncongestion_control = "cubic"\n`;
    writeFileSync(config, text);
    await begin("nsenter", within(gateway, program, "gateway", "run", "--config", config), "ready");
    await begin("nsenter", within(server, process.execPath, "-e", SERVER), "ready");
    const download = () => begin("nsenter", within(client, process.execPath, "-e", CLIENT), "ready");
    await download();
    return { end, download, configure: (more) => writeFileSync(config, text + more) };
  } catch (error) {
    await end();
    throw error;
  }
}
