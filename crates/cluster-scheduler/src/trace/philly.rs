//! Microsoft's Philly trace.

use std::io::Read;
use std::time::Duration;

use super::TraceJob;
use super::sheet::Sheet;
use crate::Error;

/// Reads jobs of Microsoft's Philly cluster (Jeon et al., USENIX ATC 2019) from a CSV with the
/// columns `timestamp` (`2017-10-06 12:00:00`), `duration` (seconds) and `num_gpus`, in order of
/// time.
///
/// `file` is the name in errors.
///
/// # Errors
///
/// [`Error::BadTrace`] if the file is no valid CSV, lacks a column or has a value outside its
/// range, or if a timestamp is earlier than that of the line before.
pub fn philly(file: &str, input: impl Read) -> Result<Vec<TraceJob>, Error> {
    let mut sheet = Sheet::open(file, input, &[&["timestamp"], &["duration"], &["num_gpus"]])?;
    let mut jobs: Vec<TraceJob> = Vec::new();
    let mut first = None;
    while sheet.next()? {
        let text = sheet.text(0)?;
        let expected = || sheet.bad(0, format!("`{text}`, expected a time such as `2017-10-06 12:00:00`"));
        let at = seconds_of(text).ok_or_else(expected)?;
        let arrival = at.checked_sub(*first.get_or_insert(at)).filter(|&arrival| arrival >= 0);
        let arrival = Duration::from_secs(arrival.unwrap_or(-1).try_into().unwrap_or(u64::MAX));
        if jobs.last().is_some_and(|last| last.arrival > arrival) || arrival == Duration::from_secs(u64::MAX)
        {
            return Err(sheet.bad(0, format!("`{text}` is earlier than the line before")));
        }
        let duration =
            sheet.number(1, "seconds from 1 on", |&seconds: &u64| (1..1 << 30).contains(&seconds))?;
        let gpus =
            sheet.number(2, "a number of GPUs from 1 on", |&gpus: &usize| (1..1 << 20).contains(&gpus))?;
        jobs.push(TraceJob { arrival, duration: Duration::from_secs(duration), gpus });
    }
    Ok(jobs)
}

/// Converts a date and time to seconds since 1970, without time zones.
fn seconds_of(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(' ')?;
    let three = |text: &str, by: char| {
        let mut parts = text.split(by).map(|part| part.parse::<i64>().ok());
        let found = (parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(found)
    };
    let ((year, month, day), (hour, minute, second)) = (three(date, '-')?, three(time, ':')?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is_date =
        (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=days_of_month).contains(&day);
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..60).contains(&second);
    (is_date && is_time).then(|| {
        // With years that begin in March, the leap day is the last day.
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let leap_days = year / 4 - year / 100 + year / 400;
        let days = 365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468;
        days * 86_400 + hour * 3600 + minute * 60 + second
    })
}

#[cfg(test)]
mod tests {
    use super::seconds_of;

    #[test]
    fn dates_are_counted_from_1970() {
        assert_eq!(seconds_of("1970-01-01 00:00:01"), Some(1));
        assert_eq!(seconds_of("2017-09-04 10:30:41"), Some(1_504_521_041));
        assert_eq!(seconds_of("2000-02-29 00:00:00"), Some(951_782_400));
        assert_eq!(seconds_of("2017-13-04 10:30:41"), None);
    }

    #[test]
    fn dates_that_no_month_has_are_refused() {
        for day in ["2017-02-29", "2017-02-30", "1900-02-29", "2100-02-29", "2017-04-31", "2017-06-31"] {
            assert_eq!(seconds_of(&format!("{day} 00:00:00")), None, "{day}");
        }
        for day in ["2016-02-29", "2017-01-31", "2017-12-31"] {
            assert!(seconds_of(&format!("{day} 00:00:00")).is_some(), "{day}");
        }
    }
}
