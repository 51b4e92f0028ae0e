-- Exact figures in one line; `-- upload BYTES` posts a body of so many bytes.
function init(args)
  if args[1] == "upload" then
    wrk.method = "POST"
    wrk.body = string.rep("x", tonumber(args[2]))
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("figures %d %d %d %d\n", summary.requests, summary.bytes, summary.duration,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
