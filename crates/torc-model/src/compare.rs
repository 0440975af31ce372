//! The outputs of two attempts side by side: numbers, times and paths are masked, so that what is
//! left differs. The page, the terminal and the API compare with this.

/// Lines of each output that are compared; the last ones.
pub const MAX_LINES: usize = 1500;

/// A line of a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// In both.
    Same(String),
    /// Only in the earlier attempt.
    Gone(String),
    /// Only in the later one.
    New(String),
    /// So many equal lines that are not shown.
    Equal(usize),
}

/// Compares two outputs line by line, the last [`MAX_LINES`] of each. Of equal lines only `around`
/// stay beside each difference.
pub fn compare(earlier: &[String], later: &[String], around: usize) -> Vec<Line> {
    let last = |lines: &'_ [String]| lines.len().saturating_sub(MAX_LINES);
    let (a, b) = (&earlier[last(earlier)..], &later[last(later)..]);
    let keys = |lines: &[String]| -> Vec<String> { lines.iter().map(|l| masked(l)).collect() };
    let (ka, kb) = (keys(a), keys(b));
    folded(differences(a, b, &ka, &kb), around)
}

/// A line without what differs from run to run anyway: digits, and directories of paths.
fn masked(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for word in line.split_inclusive(' ') {
        let word = match word.rfind('/') {
            Some(at) if word.starts_with(['/', '.', '"', '\'', '(']) => {
                out.push('/');
                &word[at + 1..]
            }
            _ => word,
        };
        let mut was_digit = false;
        for c in word.chars() {
            let is_digit = c.is_ascii_digit();
            match (is_digit, was_digit) {
                (true, false) => out.push('0'),
                (true, true) => {}
                (false, _) => out.push(c),
            }
            // A fraction or a clock is one number.
            was_digit = is_digit || (was_digit && matches!(c, '.' | ':'));
            if was_digit && !is_digit {
                out.pop();
            }
        }
    }
    out
}

/// The longest common subsequence by dynamic programming, after equal ends are set aside.
fn differences(a: &[String], b: &[String], ka: &[String], kb: &[String]) -> Vec<Line> {
    let before = ka.iter().zip(kb).take_while(|(x, y)| x == y).count();
    let after = ka[before..].iter().rev().zip(kb[before..].iter().rev());
    let after = after.take_while(|(x, y)| x == y).count();
    let (ma, mb) = (before..a.len() - after, before..b.len() - after);
    let (na, nb) = (ma.len(), mb.len());
    // `table[i][j]`: length of the longest common part of what follows.
    let mut table = vec![0u16; (na + 1) * (nb + 1)];
    for i in (0..na).rev() {
        for j in (0..nb).rev() {
            table[i * (nb + 1) + j] = match ka[before + i] == kb[before + j] {
                true => table[(i + 1) * (nb + 1) + j + 1] + 1,
                false => table[(i + 1) * (nb + 1) + j].max(table[i * (nb + 1) + j + 1]),
            };
        }
    }
    let mut out: Vec<Line> = b[..before].iter().cloned().map(Line::Same).collect();
    let (mut i, mut j) = (0, 0);
    while i < na || j < nb {
        if i < na && j < nb && ka[before + i] == kb[before + j] {
            out.push(Line::Same(b[before + j].clone()));
            (i, j) = (i + 1, j + 1);
        } else if i < na
            && (j == nb || table[(i + 1) * (nb + 1) + j] >= table[i * (nb + 1) + j + 1])
        {
            out.push(Line::Gone(a[before + i].clone()));
            i += 1;
        } else {
            out.push(Line::New(b[before + j].clone()));
            j += 1;
        }
    }
    out.extend(b[mb.end..].iter().cloned().map(Line::Same));
    out
}

fn folded(all: Vec<Line>, around: usize) -> Vec<Line> {
    let is_same = |line: &Line| matches!(line, Line::Same(_));
    let near: Vec<bool> = (0..all.len())
        .map(|at| {
            let window = at.saturating_sub(around)..(at + around + 1).min(all.len());
            !all[window].iter().all(is_same)
        })
        .collect();
    let mut out = Vec::new();
    for (line, near) in all.into_iter().zip(near) {
        match (near, out.last_mut()) {
            (true, _) => out.push(line),
            (false, Some(Line::Equal(count))) => *count += 1,
            (false, _) => out.push(Line::Equal(1)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(a: &str, b: &str, around: usize) -> Vec<Line> {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        super::compare(&lines(a), &lines(b), around)
    }

    #[test]
    fn numbers_times_and_paths_do_not_count() {
        let a = "12:03:11 epoch 1 loss 0.93\nreading /tmp/a1/data.csv\ndone in 3.4 s\n";
        let b = "14:15:00 epoch 1 loss 0.87\nreading /tmp/b2/data.csv\ndone in 12 s\n";
        assert_eq!(compare(a, b, 1), [Line::Equal(3)]);
    }

    #[test]
    fn what_differs_stands_with_its_neighbours() {
        let a = "one\ntwo\nthree\nfour\nfive\n";
        let b = "one\ntwo\nKilled\nfour\nfive\n";
        let same = |text: &str| Line::Same(text.into());
        let expected = [
            Line::Equal(1),
            same("two"),
            Line::Gone("three".into()),
            Line::New("Killed".into()),
            same("four"),
            Line::Equal(1),
        ];
        assert_eq!(compare(a, b, 1), expected);
        assert_eq!(compare("", "x\n", 1), [Line::New("x".into())]);
        assert_eq!(compare("", "", 1), []);
    }

    #[test]
    fn long_outputs_are_compared_at_their_end() {
        let a: String = (0..4000).map(|i| format!("line {}\n", "x".repeat(i % 7))).collect();
        let b = a.clone() + "Traceback\n";
        let found = compare(&a, &b, 0);
        assert!(found.contains(&Line::New("Traceback".into())), "{found:?}");
    }
}
