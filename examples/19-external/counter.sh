#!/bin/sh
# An executor of your own with nothing but curl: it claims tasks of executor `shell-counter`.
set -eu
url=$(sed -n 's/^ *server: //p' "$KUBECONFIG")/apis/kilnwork.dev/v1alpha1/namespaces/default/taskclaims
token=$(sed -n 's/^ *token: //p' "$KUBECONFIG")
scratch=$(mktemp -d)
sed -n 's/^ *certificate-authority-data: //p' "$KUBECONFIG" | base64 -d >"$scratch/ca.crt"
claim='' number=0

api() { # curl's arguments
    curl -sS --fail-with-body --cacert "$scratch/ca.crt" -H "Authorization: Bearer $token" "$@"
}
report() { # fields of the status
    api -X PATCH "$url/$claim/status" -H 'Content-Type: application/merge-patch+json' -d "{\"status\": $1}"
}
field() { # name of a string: the API server writes a line for each field, if it is curl that asks
    sed -n "s/^ *\"$1\": \"\(.*\)\",*$/\1/p"
}
look() { # read the claim; every tenth time renew the lease
    looks=$((looks + 1))
    if [ $((looks % 10)) -eq 0 ]; then
        report "{\"renewTime\": \"$(date -u +%Y-%m-%dT%H:%M:%SZ)\"}"
    else
        api "$url/$claim"
    fi
}
finish() {
    [ -z "$claim" ] || api -X DELETE "$url/$claim" >/dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 0' INT TERM

while :; do
    number=$((number + 1)) looks=0 phase=Waiting
    claim=shell-counter-$$-$number
    api "$url" -H 'Content-Type: application/json' -d '{
        "apiVersion": "kilnwork.dev/v1alpha1", "kind": "TaskClaim", "metadata": {"name": "'"$claim"'"},
        "spec": {"executor": "shell-counter", "leaseSeconds": 30, "ttlSecondsAfterFinished": 0}}' >/dev/null
    while [ "$phase" = Waiting ] || [ -z "$phase" ]; do
        sleep 1
        seen=$(look)
        phase=$(echo "$seen" | field phase)
    done
    if [ "$phase" = Claimed ]; then
        text=$(echo "$seen" | field text)
        outcome="{\"state\": \"Succeeded\", \"result\": $(echo "$text" | wc -w)}"
        [ -n "$text" ] || outcome='{"state": "Failed", "reason": "NoWords", "retry": false}'
        report "{\"outcome\": $outcome}" >/dev/null
    elif [ "$phase" = Killing ]; then
        report '{"outcome": {"state": "Killed"}}' >/dev/null
    fi
done
