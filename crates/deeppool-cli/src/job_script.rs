//! Job scripts for Slurm, in which hosts are called nodes.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// Parameters of a job script. Its `Display` is the script.
pub(crate) struct JobScript<'a> {
    /// Number of nodes.
    pub(crate) nodes: usize,
    /// Number of ranks per node.
    pub(crate) ranks_per_node: usize,
    /// Number of CPU cores per rank (`--cpus-per-task`).
    pub(crate) cpus_per_rank: usize,
    /// Time limit of the job; `None` for that of the Slurm partition.
    pub(crate) time: Option<&'a TimeLimit>,
    /// Name of the Slurm partition; `None` for the default of the cluster.
    pub(crate) partition: Option<&'a str>,
    /// Name of the job, with which the name of its output file begins.
    pub(crate) name: &'a str,
    /// Seconds before the time limit at which the job receives SIGTERM.
    pub(crate) warning_s: usize,
    /// Maximum number of restarts from the same checkpoint.
    pub(crate) restarts: usize,
    /// Folder in which the job runs, to which relative paths refer.
    pub(crate) folder: &'a str,
    /// Path of this program on all nodes.
    pub(crate) program: &'a str,
    /// Arguments of the program on each rank, from `train` on.
    pub(crate) command: &'a [String],
    /// Folder of checkpoints in `command`. `None` if it has none: the script then adds the option
    /// for a folder with the number of the job.
    pub(crate) checkpoints: Option<&'a str>,
}

/// Time limit of a job in the format of `sbatch --time`, such as `1:30:00` or `2-12`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimeLimit {
    text: String,
    seconds: u64,
}

impl TimeLimit {
    /// Returns the time limit in seconds.
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
        // Slurm counts minutes in 32 bits, and 0 is no limit.
        match Self::parse(text) {
            Some(seconds) if (1..=u64::from(u32::MAX / 2)).contains(&seconds) => {
                Ok(Self { text: text.into(), seconds })
            }
            _ => Err("expected a time above 0 such as 90 (minutes), 1:30:00 (hours, minutes, seconds) or \
                2-12 (days, hours)"
                .into()),
        }
    }
}

impl Display for TimeLimit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Quotes a word for a shell.
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
# Nodes: {nodes}, ranks: {}; written by deeppool {}.
# Submit it with sbatch. Options of sbatch override those below.
# The program must be on all nodes, built with the feature mpi.
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
            // A job keeps its number after a requeue.
            None => ("\"run-$SLURM_JOB_ID\"".into(), " --checkpoint \"$checkpoints\""),
        };
        let command: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        write!(
            f,
            r#"# After a requeue the job resumes from its checkpoint and appends to its output.
#SBATCH --output={name}-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
# Seconds before the time limit at which ranks write a checkpoint and end.
#SBATCH --signal=TERM@{warning_s}

cd -- {folder} || exit 1
checkpoints={checkpoints}

# If a rank fails, all ranks end.
srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task={cpus_per_rank} \
    {program} {command}{option}
code=$?

# Do not retry success or wrong input.
if [ "$code" = 0 ] || [ "$code" = 2 ]; then exit "$code"; fi
newest=$(ls -d -- "$checkpoints"/iteration-*[0-9] 2>/dev/null | tail -n 1)
newest=${{newest##*/}}
if [ -z "$newest" ]; then exit "$code"; fi

# The comment of the job holds the number of restarts from this checkpoint.
read -r state restarts from < <(squeue --noheader --job "$SLURM_JOB_ID" --format '%T %k')
# Do not requeue a cancelled job.
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
    fn time_limits_parse_as_in_slurm() {
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
    fn words_with_special_characters_are_quoted() {
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
