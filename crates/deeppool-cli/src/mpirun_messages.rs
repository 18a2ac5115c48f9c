//! Messages of mpirun on standard error: blocks of text between two lines of dashes.

use std::io::{self, BufRead, Write};

/// Copies the standard error of mpirun from `from` to `to`, without its blocks about ranks that
/// failed, which have printed their errors. A rank that was killed by a signal gets one line.
///
/// # Errors
/// If reading or writing fails.
pub(super) fn forward(mut from: impl BufRead, mut to: impl Write) -> io::Result<()> {
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
                match classify(&text) {
                    Message::Ended { rank, signal } => {
                        writeln!(to, "error: rank {rank} was ended by signal {signal}")?;
                    }
                    Message::Failed => {}
                    Message::Other => to.write_all(&block)?,
                }
                block.clear();
            }
        }
    }
}

/// Returns whether a line is the ruler before and after a message of mpirun.
fn is_ruler(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    line.len() > 70 && line.iter().all(|&byte| byte == b'-')
}

#[derive(Debug, PartialEq)]
enum Message<'t> {
    Ended { rank: &'t str, signal: &'t str },
    Failed,
    Other,
}

fn classify(block: &str) -> Message<'_> {
    let after = |what: &str| block.split_once(what).map(|(_, after)| after);
    let rank = after("noticed that process rank ").and_then(|after| after.split(' ').next());
    let signal = after("exited on signal ").and_then(|after| after.lines().next());
    match (rank, signal) {
        (Some(rank), Some(signal)) => Message::Ended { rank, signal: signal.trim_end_matches('.') },
        _ if block.contains("non-zero exit code") || block.contains("non-zero status") => Message::Failed,
        _ => Message::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::forward;

    #[test]
    fn killed_ranks_get_one_line() {
        let ruler = "-".repeat(74);
        let read = |text: &str| {
            let mut passed = Vec::new();
            forward(text.as_bytes(), &mut passed).unwrap();
            String::from_utf8(passed).unwrap()
        };
        let killed = format!(
            "stopping\n{ruler}\nPrimary job  terminated normally, but 1 process returned\na non-zero exit \
             code.\n{ruler}\n\
             {ruler}\nmpirun noticed that process rank 2 with PID 0 on node a exited on signal 9 \
             (Killed).\n{ruler}\nlast\n"
        );
        assert_eq!(read(&killed), "stopping\nerror: rank 2 was ended by signal 9 (Killed)\nlast\n");
        for other in
            [format!("{ruler}\nThere are not enough slots.\n{ruler}\n"), format!("a\n{ruler}\nunfinished")]
        {
            assert_eq!(read(&other), other);
        }
    }
}
