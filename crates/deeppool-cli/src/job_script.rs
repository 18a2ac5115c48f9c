//! The text of a job script for Slurm.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// What a job is to be.
pub(crate) struct JobScript<'a> {
    pub(crate) nodes: usize,
    pub(crate) ranks_per_node: usize,
    pub(crate) cpus_per_rank: usize,
    pub(crate) time: Option<&'a TimeLimit>,
    pub(crate) partition: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) warning_s: usize,
    pub(crate) restarts: usize,
    /// Where relative paths begin.
    pub(crate) folder: &'a str,
    pub(crate) program: &'a str,
    /// What each rank is given.
    pub(crate) command: &'a [String],
    /// The folder of checkpoints that the command names. If it names none, the job has one of its own.
    pub(crate) checkpoints: Option<&'a str>,
}

/// A time as `sbatch --time` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimeLimit {
    text: String,
    seconds: u64,
}

impl TimeLimit {
    pub(crate) fn seconds(&self) -> u64 {
        self.seconds
    }

    fn parse(text: &str) -> Option<u64> {
        let (days, clock) = match text.split_once('-') {
            Some((days, clock)) => (Some(days), clock),
            None => (None, text),
        };
        let number =
            |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?;
        let parts: Vec<u64> = clock.split(':').map(number).collect::<Option<_>>()?;
        let [hours, minutes, seconds] = match (days, &*parts) {
            (Some(_), &[hours]) => [hours, 0, 0],
            (Some(_), &[hours, minutes]) => [hours, minutes, 0],
            (None, &[minutes]) => [0, minutes, 0],
            (None, &[minutes, seconds]) => [0, minutes, seconds],
            (_, &[hours, minutes, seconds]) => [hours, minutes, seconds],
            _ => return None,
        };
        let hours = days.map_or(Some(0), number)?.checked_mul(24)?.checked_add(hours)?;
        hours.checked_mul(60)?.checked_add(minutes)?.checked_mul(60)?.checked_add(seconds)
    }
}

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Slurm counts minutes, in 32 bits; none of them would be no limit.
        match Self::parse(text) {
            Some(seconds) if (1..=u64::from(u32::MAX / 2)).contains(&seconds) => Ok(Self { text: text.into(), seconds }),
            _ => Err("expected a time above 0 such as 90 (minutes), 1:30:00 (hours, minutes, seconds) or 2-12 (days, hours)".into()),
        }
    }
}

impl Display for TimeLimit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:=,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

impl Display for JobScript<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { nodes, ranks_per_node, cpus_per_rank, name, warning_s, restarts, .. } = self;
        writeln!(
            f,
            "#!/bin/bash
# Nodes: {nodes}, ranks: {}; written by deeppool {}. Submit it with sbatch, whose own options come before those below.
# The program has to be on all nodes, built with the feature mpi.
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={ranks_per_node}
#SBATCH --cpus-per-task={cpus_per_rank}",
            nodes * ranks_per_node,
            env!("CARGO_PKG_VERSION"),
        )?;
        if let Some(time) = self.time {
            writeln!(f, "#SBATCH --time={time}")?;
        }
        if let Some(partition) = self.partition {
            writeln!(f, "#SBATCH --partition={partition}")?;
        }
        let (checkpoints, option) = match self.checkpoints {
            Some(folder) => (quoted(folder), ""),
            // A job has its number also after a requeue.
            None => ("\"run-$SLURM_JOB_ID\"".into(), " --checkpoint \"$checkpoints\""),
        };
        let command: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        write!(
            f,
            r#"# After a requeue the job goes on from its checkpoint, and its output after what is there.
#SBATCH --output={name}-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
# So long before the time is up, the ranks are told to write a checkpoint and to end.
#SBATCH --signal=TERM@{warning_s}

cd -- {folder} || exit 1
checkpoints={checkpoints}

# When a rank fails, the others end too.
srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task={cpus_per_rank} \
    {program} {command}{option}
code=$?

# Wrong input does not become right.
if [ "$code" = 0 ] || [ "$code" = 2 ]; then exit "$code"; fi
newest=$(ls -d -- "$checkpoints"/iteration-*[0-9] 2>/dev/null | tail -n 1)
newest=${{newest##*/}}
if [ -z "$newest" ]; then exit "$code"; fi

# How often it has gone on from this checkpoint is kept in the job's comment.
read -r state restarts from < <(squeue --noheader --job "$SLURM_JOB_ID" --format '%T %k')
# Who has cancelled the job does not want it back.
if [ "$state" != RUNNING ]; then exit "$code"; fi
if [ "$from" != "$newest" ]; then restarts=0; fi
if [ "$restarts" -ge {restarts} ]; then
    echo "it has gone on from $newest $restarts times: giving up" >&2
    exit "$code"
fi
echo "not finished: going on from $newest" >&2
scontrol update JobId="$SLURM_JOB_ID" Comment="$((restarts + 1)) $newest" && scontrol requeue "$SLURM_JOB_ID"
exit "$code"
"#,
            folder = quoted(self.folder),
            program = quoted(self.program),
            command = command.join(" "),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{TimeLimit, quoted};

    #[test]
    fn times_are_those_of_slurm() {
        for (text, seconds) in [
            ("90", 5400),
            ("1:30", 90),
            ("1:00:00", 3600),
            ("2-12", 216_000),
            ("1-1:1", 90_060),
            ("0-0:0:1", 1),
        ] {
            assert_eq!(text.parse::<TimeLimit>().unwrap().seconds(), seconds, "{text}");
        }
        for text in
            ["", "0", "1:", "-1", "1-", "1:2:3:4", "1-1:1:1:1", "1h", "+5", "99999999999999999999", "1\n"]
        {
            assert!(text.parse::<TimeLimit>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_read_more_into_them() {
        for (word, shown) in [
            ("--batch=32", "--batch=32"),
            ("mnist:a/b", "mnist:a/b"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(id)", "'$(id)'"),
            ("it's", r"'it'\''s'"),
            ("a\nb", "'a\nb'"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }
}
