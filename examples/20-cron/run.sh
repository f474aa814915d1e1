#!/usr/bin/env bash
# Schedules: one that makes a Job each second, and others whose next runs are looked at.
# Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

jobs() { kiln get jobs --no-headers 2>/dev/null | awk '/^(every-second|spread)-/ {print $1, $2}'; }
clean_up() {
    kiln delete -f "$here/cron.yaml" >/dev/null
    until [ -z "$(jobs)" ]; do sleep 0.1; done # those that a JobConfig has made go with it
}
trap clean_up EXIT

# What is no schedule is refused, with the field, and nothing else of the file is made.
if sed 's/{name: spread}/{name: broken}/; s/"H H(1-4)/"61 2/' "$here/cron.yaml" | kiln apply -f -; then exit 1; fi
[ -z "$(kiln get jobconfigs --no-headers 2>/dev/null | grep -E '^(every-second|broken) ')" ]
kiln apply -f "$here/cron.yaml"
until [ "$(jobs | grep -c 'every.*Succeeded')" -ge 2 ]; do sleep 0.2; done

kiln disable every-second # the ticks that pass meanwhile are over
kiln schedule

for job in $(jobs | awk '/^every.*Succeeded/ {print $1}' | head -n 2); do
    tick=$(date -u -d "@${job##*-}" +%Y-%m-%dT%H:%M:%SZ) # the name of the Job has the tick in it
    [ "$(kiln logs "$job-0")" = "tick $tick" ]
done
kiln get jobconfig new-year -o yaml | grep -- '-12-31T23:00:00Z' # in UTC

# Nights that are past: the ticks of the schedule between two times, one Job each.
kiln backfill spread --from 2026-01-01 --to 2026-01-02
echo "a Job for each tick, until the schedule was switched off: ok"
