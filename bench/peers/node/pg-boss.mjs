// pg-boss: stores messages, waits for a line on standard input, drains them and prints the times.
//
// Every loop fetches a batch, handles each message of it and completes the batch with one statement;
// it is through when that statement is committed.

import { createInterface } from 'node:readline/promises'
import { performance } from 'node:perf_hooks'
import { PgBoss } from 'pg-boss'

const QUEUE = 'messages'
const PAYLOAD_BYTES = 256
const [count, insertBatch, fetchBatch, loops] = process.argv.slice(2).map(Number)

function message (id) {
  const message = { id, kind: 'order.created', customer: 7_000_000 + id, note: '' }
  message.note = 'n'.repeat(PAYLOAD_BYTES - JSON.stringify(message).length)
  return message
}

const boss = new PgBoss({
  connectionString: process.env.PEERS_POSTGRES,
  max: loops,
  supervise: false,
  schedule: false
})
boss.on('error', error => { throw error })
await boss.start()
await boss.createQueue(QUEUE)

const enqueueBegan = performance.now()
for (let first = 0; first < count; first += insertBatch) {
  const length = Math.min(insertBatch, count - first)
  await boss.insert(QUEUE, Array.from({ length }, (_, n) => ({ data: message(first + n) })))
}
const enqueueMs = performance.now() - enqueueBegan

console.log(JSON.stringify({ enqueue_ms: enqueueMs }))
const input = createInterface({ input: process.stdin })
await new Promise(resolve => input.once('line', resolve))
input.close()

const seen = new Set()
let handledAt = 0

function handle (job) {
  seen.add(job.data.id)
  if (seen.size === count) handledAt = performance.now()
}

async function work () {
  while (seen.size < count) {
    const jobs = await boss.fetch(QUEUE, { batchSize: fetchBatch })
    if (jobs.length === 0) continue
    jobs.forEach(handle)
    const ids = jobs.map(job => job.id)
    const { affected } = await boss.complete(QUEUE, ids)
    if (affected !== ids.length) throw new Error(`${affected} of ${ids.length} were completed`)
  }
}

const began = performance.now()
await Promise.all(Array.from({ length: loops }, work))
const drainedAt = performance.now()
console.log(JSON.stringify({ handled_ms: handledAt - began, drain_ms: drainedAt - began }))
await boss.stop({ graceful: false })
process.exit(0)
