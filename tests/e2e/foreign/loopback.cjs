// Preloaded into test servers: keeps them on the loopback interface, on a free port that they print.
const net = require("node:net");

const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (...args) {
  const callback = args.find((value) => typeof value === "function");
  this.once("listening", () => console.error(`loopback port ${this.address().port}`));
  return listen.call(this, { host: "127.0.0.1", port: 0 }, callback);
};
