// One run of the bench stream through the TypeScript SDK: `node ts_bench.mjs MODULE PLAYER SCRIPT ROOTS`, where MODULE
// is a bundle of `packages/sdk/client` of the public repository; prints one line of JSON.
//
// CPU time is that of this process, between the prompt and the result; what is compared is summed up after that.

import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

const [module, player, script, roots] = process.argv.slice(2)
const { DeepSeekHarness } = await import(pathToFileURL(module).href)

// As Python's json.dumps with sorted keys: members by code points, no spaces, nothing but control characters escaped.
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (value === null || typeof value !== 'object') return JSON.stringify(value)
  const members = Object.keys(value).sort().map(key => `${JSON.stringify(key)}:${canonical(value[key])}`)
  return `{${members.join(',')}}`
}

function checksum(notifications) {
  const digest = createHash('sha256')
  for (const { method, params } of notifications) {
    digest.update(`${method}\t${params.sessionId ?? '-'}\t${canonical(params)}\n`)
  }
  return digest.digest('hex')
}

// This SDK's result has no finish reason of its own; it is read from the events it does give.
function finishReason(events) {
  const end = events.findLast(event => event.type === 'turn/end')
  return end?.data?.reason?.kind ?? null
}

const harness = new DeepSeekHarness({ launch: { command: player, args: [script] }, cwd: '/' })
await harness.start()
const count = Number(roots)
const ids = count === 1 ? ['bench-root'] : Array.from({ length: count }, (_, number) => `bench-root-${number}`)
const before = process.hrtime.bigint()
const cpuBefore = process.cpuUsage()
const results = await Promise.all(ids.map(sessionId => harness.run('go', { sessionId })))
const cpu = process.cpuUsage(cpuBefore)
const wall = Number(process.hrtime.bigint() - before) / 1e9
const peak = readFileSync('/proc/self/status', 'utf8').match(/VmHWM:\s*(\d+)/)
console.log(JSON.stringify({
  cpu_seconds: (cpu.user + cpu.system) / 1e6,
  wall_seconds: wall,
  peak_bytes: Number(peak?.[1] ?? 0) * 1024,
  runs: results.map(result => ({
    final_response: result.finalResponse,
    finish_reason: finishReason(result.events),
    notifications: result.notifications.length,
    checksum: checksum(result.notifications),
  })),
}))
await harness.close()
