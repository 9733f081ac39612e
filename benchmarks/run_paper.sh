#!/usr/bin/env bash
# Every row of the paper's two tables, into docs/results. What is there is not run again, so it can be stopped and called
# again until all is there:
#
#   RRNN_DATA=… benchmarks/run_paper.sh lm [minutes]          language models on the Penn Treebank, the whole plan of lm_plan.py
#   RRNN_DATA=… benchmarks/run_paper.sh classify [minutes]    text classifiers, PROCESSES=… of them side by side
#   RRNN_DATA=… benchmarks/run_paper.sh literal [minutes]     the paper's recipe as it is printed, and nothing else, about an hour
#   benchmarks/run_paper.sh table                             the tables and plots, of what is there
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
what="${1:?lm, literal, classify or table}" minutes="${2:-100000}" folder="${FOLDER:-docs/results}"
python="${PYTHON:-python3}"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
deadline=$((SECONDS + minutes * 60))

case "$what" in
lm | literal) # the plan and its settings are in lm_plan.py
    parts=()
    [ "$what" = lm ] || parts=(--parts literal starts literal-start literal-seeds-10m
        literal-seeds-24m literal-text-gate literal-text-gate-seeds)
    "$python" benchmarks/lm_queue.py "$folder/lm-ptb" "${parts[@]}" --minutes "$minutes"
    ;;
classify)
    models=(LSTM B C B-max-plus F)
    classify() { # data, how settings are chosen
        "$python" benchmarks/paper_classify.py "$folder/classify" --datasets "$1" "${@:2}" --models "${models[@]}" \
            --processes "${PROCESSES:-1}" --minutes "$(((deadline - SECONDS) / 60))" \
            --label "$label" --set "${set[@]}"
    }
    label=averaged set=(average=0.995)
    classify cr --best 4 --again 4
    classify sst --best 3 --again 2
    classify subj --best 3 --again 2
    set=(average=0.999 vector_length=5)
    label=averaged-longer-vectors classify sst --best 3 --again 2
    set+=(characters=50 unknown=one)
    label=averaged-letters classify sst --best 3 --again 2
    [ -e reviews.npz ] || "$python" benchmarks/review_vectors.py reviews.npz
    set+=(vectors=reviews.npz vector_length=7)
    label=averaged-reviews classify sst --best 5 --again 0 --held-out 4
    label=averaged-reviews classify cr --best 4 --again 4
    label=averaged-reviews classify subj --best 3 --again 2
    # Many times the words in an epoch.
    set=(average=0.999 vector_length=5 stop_after=8 halve_after=3)
    label=averaged-longer-vectors classify amazon --settings 6 --best 2 --again 1
    # With unit vectors an LSTM mostly fails with the others' 8 epochs of patience. 20 minutes a training, so none again.
    models=(B C B-max-plus F) set=(average=0.995 stop_after=8 halve_after=3)
    classify amazon --settings 6 --best 2 --again 1
    models=(LSTM) set=(average=0.995 stop_after=20 halve_after=8)
    classify amazon --settings 6 --again 0
    ;;
table)
    "$python" benchmarks/paper_lm.py "$folder/lm-ptb" --table
    [ ! -d "$folder/classify" ] || "$python" benchmarks/paper_classify.py "$folder/classify" --table
    "$python" docs/tables.py # the pages, with the tables and plots of docs/results
    ;;
*)
    echo "lm, literal, classify or table; got $what" >&2
    exit 2
    ;;
esac
