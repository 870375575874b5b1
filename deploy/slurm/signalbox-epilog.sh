#!/bin/sh
# Notifies Signalbox of a job that ended badly. Slurm runs it on the controller when a job has ended, in one of two ways:
#
#   EpilogSlurmctld=/etc/slurm/signalbox-epilog.sh                            (in addition to other such scripts)
#   JobCompType=jobcomp/script  JobCompLoc=/etc/slurm/signalbox-epilog.sh     (also knows the state, such as TIMEOUT)
#
# It never delays or fails a job: it sends in the background for a few seconds at most, in its own session because Slurm kills
# what is left of the script's, and always exits with 0. If a request is lost, Signalbox finds the job a minute later by polling
# the accounting. Needs curl and setsid (util-linux).
#
# Put signalbox-epilog.conf next to it, readable by the controller's user, with two lines:
#
#   SIGNALBOX_URL=https://signalbox.example.org/hooks/ended/slurm
#   SIGNALBOX_SECRET_FILE=/etc/slurm/signalbox-secret      # one line: the secret of serve.webhooks.slurm; mode 0600

# shellcheck source=/dev/null
[ -r "${0%/*}/signalbox-epilog.conf" ] && . "${0%/*}/signalbox-epilog.conf"
export PATH="${PATH:-/usr/bin:/bin}"

state=${JOBSTATE-}
exit_code=${SLURM_JOB_EXIT_CODE2:-${EXITCODE-}}
case $state in COMPLETED | CANCELLED | PREEMPTED) exit 0 ;; esac
case $state$exit_code in 0:0 | '') exit 0 ;; esac # completed or cancelled: the accounting knows which
[ -n "${SIGNALBOX_URL-}" ] && [ -r "${SIGNALBOX_SECRET_FILE-}" ] || exit 0

# the id as Slurm's commands show it; for a heterogeneous job, that of the whole
job=${SLURM_JOB_ID:-${JOBID-}}
array=${SLURM_ARRAY_JOB_ID:-${ARRAYJOBID:-0}} task=${SLURM_ARRAY_TASK_ID:-${ARRAYTASKID-}}
whole=${SLURM_HET_JOB_ID:-${HETJOBID:-0}}
[ "$array" != 0 ] && [ -n "$task" ] && job=${array}_$task
[ "$whole" != 0 ] && job=$whole
[ -n "$job" ] || exit 0

export SIGNALBOX_URL SIGNALBOX_SECRET_FILE
export SIGNALBOX_JOB="$job" SIGNALBOX_STATE="$state" SIGNALBOX_EXIT="$exit_code"
SIGNALBOX_CLUSTER=${SLURM_CLUSTER_NAME:-${CLUSTER-}} SIGNALBOX_ENDED=${END:-$(date +%s)}
export SIGNALBOX_CLUSTER SIGNALBOX_ENDED

# the secret is passed to curl through a pipe: command lines are visible to everyone
# shellcheck disable=SC2016
setsid sh -c '
  sed -n "s/[[:space:]]*\$//; s/^[[:space:]]*//; s/[\\\\\"]/\\\\&/g; 1s/.*/header = \"Authorization: Bearer &\"/p" \
    "$SIGNALBOX_SECRET_FILE" |
  curl --config - --silent --output /dev/null --connect-timeout 3 --max-time 10 --retry 1 --retry-max-time 10 \
    --data-urlencode "job=$SIGNALBOX_JOB" --data-urlencode "state=$SIGNALBOX_STATE" \
    --data-urlencode "exit_code=$SIGNALBOX_EXIT" --data-urlencode "cluster=$SIGNALBOX_CLUSTER" \
    --data-urlencode "ended=$SIGNALBOX_ENDED" "$SIGNALBOX_URL" &
' </dev/null >/dev/null 2>&1

exit 0
