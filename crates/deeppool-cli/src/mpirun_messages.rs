//! What mpirun itself says on standard error, between what its ranks do.

use std::io::{self, BufRead, Write};

/// Passes all of it on, but for the blocks in which mpirun says how ranks ended: of a rank that a signal ended, which says nothing
/// itself, there is one line, and one that failed has said why.
pub(super) fn pass_on(mut from: impl BufRead, mut to: impl Write) -> io::Result<()> {
    let mut block: Vec<u8> = Vec::new();
    loop {
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line)? == 0 {
            return to.write_all(&block);
        }
        match (is_ruler(&line), block.is_empty()) {
            (false, true) => to.write_all(&line)?,
            (false, false) | (true, true) => block.extend(line),
            (true, false) => {
                block.extend(line);
                let text = String::from_utf8_lossy(&block).into_owned();
                match said(&text) {
                    Said::Ended { rank, signal } => {
                        writeln!(to, "error: rank {rank} was ended by signal {signal}")?;
                    }
                    Said::Failed => {}
                    Said::Else => to.write_all(&block)?,
                }
                block.clear();
            }
        }
    }
}

/// The line before and after each of its messages.
fn is_ruler(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    line.len() > 70 && line.iter().all(|&byte| byte == b'-')
}

#[derive(Debug, PartialEq)]
enum Said<'t> {
    Ended { rank: &'t str, signal: &'t str },
    Failed,
    Else,
}

fn said(block: &str) -> Said<'_> {
    let after = |what: &str| block.split_once(what).map(|(_, after)| after);
    let rank = after("noticed that process rank ").and_then(|after| after.split(' ').next());
    let signal = after("exited on signal ").and_then(|after| after.lines().next());
    match (rank, signal) {
        (Some(rank), Some(signal)) => Said::Ended { rank, signal: signal.trim_end_matches('.') },
        _ if block.contains("non-zero exit code") || block.contains("non-zero status") => Said::Failed,
        _ => Said::Else,
    }
}

#[cfg(test)]
mod tests {
    use super::pass_on;

    #[test]
    fn of_ranks_that_ended_there_is_one_line() {
        let ruler = "-".repeat(74);
        let read = |text: &str| {
            let mut passed = Vec::new();
            pass_on(text.as_bytes(), &mut passed).unwrap();
            String::from_utf8(passed).unwrap()
        };
        let killed = format!(
            "stopping\n{ruler}\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code.\n{ruler}\n\
             {ruler}\nmpirun noticed that process rank 2 with PID 0 on node a exited on signal 9 (Killed).\n{ruler}\nlast\n"
        );
        assert_eq!(read(&killed), "stopping\nerror: rank 2 was ended by signal 9 (Killed)\nlast\n");
        for other in
            [format!("{ruler}\nThere are not enough slots.\n{ruler}\n"), format!("a\n{ruler}\nunfinished")]
        {
            assert_eq!(read(&other), other);
        }
    }
}
