#!/bin/sh
# The life of a dataset, a job and a model, by curl.
#
#   lometab serve &
#   sh examples/lifecycle.sh http://127.0.0.1:8000 [API-KEY]
#
# The address can also be in LOMETAB_URL and the key in LOMETAB_API_KEY. What it makes on
# the service it deletes again, unless something goes wrong. curl 7.82 or newer.

set -eu

url=${1:-${LOMETAB_URL:-http://127.0.0.1:8000}}
key=${2:-${LOMETAB_API_KEY:-}}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# Read by every call below; a key in a file is not seen in the list of processes.
{
    echo silent
    echo show-error
    echo 'max-time = 60'
    [ -z "$key" ] || echo "header = \"Authorization: Bearer $key\""
} >"$folder/curl"

say() {
    printf '\n%s\n' "$*"
}

# call STATUS METHOD PATH [curl options]: the answer goes to $folder/body and headers;
# any other status than the expected one ends the script.
call() {
    expected=$1 method=$2 path=$3
    shift 3
    status=$(curl --config "$folder/curl" --request "$method" "$@" \
        --dump-header "$folder/headers" --output "$folder/body" \
        --write-out '%{http_code}' "$url$path")
    echo "  $method $path -> $status"
    if [ "$status" != "$expected" ]; then
        echo "  expected $expected; the service said:" >&2
        cat "$folder/body" >&2
        exit 1
    fi
}

# The first member of that name in the answer: text, or a number.
text() {
    grep -o "\"$1\":\"[^\"]*\"" "$folder/body" | head -n 1 | cut -d '"' -f 4
}
number() {
    grep -o "\"$1\":[-0-9.e+]*" "$folder/body" | head -n 1 | cut -d : -f 2
}
header() {
    tr -d '\r' <"$folder/headers" |
        awk -F ': ' -v name="$1" 'tolower($1) == tolower(name) { print $2 }'
}
beginning() {
    printf '  %s ...\n' "$(head -c "$1" "$folder/body")"
}
sha256() {
    if command -v sha256sum >/dev/null; then
        sha256sum "$1"
    else
        shasum -a 256 "$1"
    fi | cut -d ' ' -f 1
}

# A row less than the file has, so that it is not a dataset that is there already.
sed "$((2 + $$ % 1000))d" "$here/wine_quality.csv" >"$folder/wine.csv"

say "Upload a table: the service reads it and says what its columns are."
call 201 POST /datasets --form "file=@$folder/wine.csv"
dataset=$(text id)
echo "  $dataset: $(number n_rows) rows"
beginning 300

say "It is in the list of datasets; the same bytes again are the same dataset."
call 200 GET "/datasets?limit=5"
grep -q "$dataset" "$folder/body"
call 201 POST /datasets --form "file=@$folder/wine.csv"
[ "$(text id)" = "$dataset" ]

say "A wrong target is refused before anything runs, with a hint."
call 422 POST /jobs --json "{\"dataset_id\": \"$dataset\", \"target\": \"qualty\"}"
echo "  $(text code): $(text detail)"

say "Ask for a model of the wines' quality, with small settings so that it takes seconds."
name=lifecycle-$(date +%s)-$$
cat >"$folder/job.json" <<END
{
  "dataset_id": "$dataset", "target": "quality", "name": "$name",
  "hyperparameters": {"k": 4, "rank": 2, "n_blocks": 1, "d_block": 32, "n_bins": 8,
                      "d_embedding": 4, "max_epochs": 5}
}
END
call 202 POST /jobs --json "@$folder/job.json" --header "Idempotency-Key: $name"
job=$(text id)
echo "  $job is $(text status); its address is $(header Location)"

say "The same request with the same Idempotency-Key is the same job."
call 202 POST /jobs --json "@$folder/job.json" --header "Idempotency-Key: $name"
[ "$(text id)" = "$job" ]
call 200 GET "/jobs?dataset_id=$dataset"
[ "$(grep -o '"id":"job_' "$folder/body" | wc -l)" -eq 1 ]

say "Follow it to the end."
while call 200 GET "/jobs/$job"; do
    echo "    $(text status) $(text phase), epoch $(number epoch)"
    case $(text status) in
    succeeded) break ;;
    failed | cancelled)
        cat "$folder/body" >&2
        exit 1
        ;;
    esac
    sleep 1
done
model=$(text model_id)

say "How diverse are the members?"
call 200 GET "/jobs/$job/diversity"
beginning 300

say "How far can its intervals be trusted?"
call 200 GET "/jobs/$job/calibration"
beginning 300

say "The scores of the ensemble and of each member. Who has them already gets a 304."
call 200 GET "/jobs/$job/report"
beginning 300
call 304 GET "/jobs/$job/report" --header "If-None-Match: $(header ETag)"

say "The model became version 1 of its name; call that one the champion."
call 200 PUT "/models/$name/aliases/champion" --json '{"version": 1}'
call 200 GET "/models/$name@champion"
[ "$(text id)" = "$model" ]
sum=$(text onnx_sha256)

say "Ask the champion about two wines: the mean, and every member's own answer."
cat >"$folder/rows.json" <<'END'
{"missing_columns": "fill", "rows": [
  {"alcohol": 9.4, "pH": 3.51, "volatile_acidity": 0.7},
  {"alcohol": 12.8, "pH": 3.2, "volatile_acidity": null}]}
END
call 200 POST "/models/$name@champion/predict" --json "@$folder/rows.json"
beginning 600

say "Download it: one ONNX file, with all that was learned about the columns inside."
call 200 GET "/models/$model/onnx"
[ "$(sha256 "$folder/body")" = "$sum" ]
echo "  $(wc -c <"$folder/body" | tr -d ' ') bytes, sha256 $sum as announced"
call 304 GET "/models/$model/onnx" --header "If-None-Match: $(header ETag)"

say "A dataset in use, and a job whose model lives, cannot be deleted."
call 409 DELETE "/datasets/$dataset"
echo "  $(text code): $(text detail)"
call 409 DELETE "/jobs/$job"
echo "  $(text code): $(text detail)"

say "Delete the model, then the job, then the dataset."
call 204 DELETE "/models/$model"
call 404 GET "/models/$name@champion"
call 204 DELETE "/jobs/$job"
call 204 DELETE "/datasets/$dataset"

say "Done."
