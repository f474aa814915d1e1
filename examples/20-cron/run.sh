#!/usr/bin/env bash
# Schedules: one that makes a Job each second, and others whose next runs are looked at.
# Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

jobs() { kiln get jobs --no-headers 2>/dev/null | awk '/^every-second-/ {print $1, $2}'; }
clean_up() {
    kiln delete -f "$here/cron.yaml" >/dev/null
    until [ -z "$(jobs)" ]; do sleep 0.1; done # those that a JobConfig has made go with it
}
trap clean_up EXIT

# What is no schedule is refused, with the field; the others are made.
sed 's/{name: spread}/{name: broken}/; s/"H H(1-4)/"61 2/' "$here/cron.yaml" | kiln apply -f - && exit 1
kiln apply -f "$here/cron.yaml"
until [ "$(jobs | grep -c Succeeded)" -ge 2 ]; do sleep 0.2; done

# Off: the ticks that pass meanwhile are over.
sed 's/"\* \* \* \* \* \* \*"}/&, disabled: true/' "$here/cron.yaml" | kiln apply -f - >/dev/null
kiln get jobconfigs

for job in $(jobs | awk '$2 == "Succeeded" {print $1}' | head -n 2); do
    tick=$(date -u -d "@${job##*-}" +%Y-%m-%dT%H:%M:%SZ) # the name of the Job has the tick in it
    [ "$(kiln logs "$job-0")" = "tick $tick" ]
done
kiln get jobconfig new-year -o yaml | grep -A 2 nextRuns | grep -- '-12-31T23:00:00Z'
echo "a Job for each tick, until the schedule was switched off: ok"
