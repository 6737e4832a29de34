//! The front matter of a scenario: YAML between two lines of `---`, as a tree that knows its lines.
//!
//! Reading is in two steps, so that the perimeter can refuse a scenario before anything else of it is complained about: this
//! module makes a tree of whatever is there, [`Fields`] takes what is known out of it, and says of the rest which known key is
//! nearest.

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

/// Bytes that a scenario may have.
pub const MAX_BYTES: usize = 1 << 20;

/// A value with the line of the file that it begins on.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub datum: Datum,
    /// Its line, from 1.
    pub line: usize,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// Nothing.
    Nil,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Real(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Names and values, in the order of the file.
    Map(Vec<(String, Node)>),
}

impl Datum {
    /// What it is, for errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Datum::Nil => "nothing",
            Datum::Bool(_) => "true or false",
            Datum::Int(_) => "a whole number",
            Datum::Real(_) => "a number",
            Datum::Text(_) => "a text",
            Datum::List(_) => "a list",
            Datum::Map(_) => "a map",
        }
    }
}

/// Something that is wrong with a file, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

fn complaint(line: usize, what: impl Into<String>) -> Complaint {
    Complaint { line, what: what.into() }
}

/// Names and values of a map, in the order of the file.
pub type Entries = Vec<(String, Node)>;

/// The front matter's tree, and the text after it.
///
/// # Errors
/// No front matter, or YAML that does not parse, with the line.
pub fn split(text: &str) -> Result<(Entries, &str), Complaint> {
    if text.len() > MAX_BYTES {
        return Err(complaint(1, format!("a scenario has at most {MAX_BYTES} bytes, this one {}", text.len())));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let rest = text.strip_prefix("---").and_then(|rest| rest.strip_prefix('\n').or(rest.strip_prefix("\r\n")));
    let Some(rest) = rest else {
        return Err(complaint(
            1,
            "a scenario begins with its front matter: a line `---`, YAML, and another line `---`",
        ));
    };
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Ok((tree(&rest[..at])?, &rest[at + line.len()..]));
        }
        at += line.len();
    }
    Err(complaint(1, "the front matter has no end: a line `---` closes it"))
}

/// The documents of a YAML text. Lines are counted as if one more stood before it.
pub(super) fn documents(yaml: &str) -> Result<Vec<Node>, Complaint> {
    let documents = MarkedYaml::load_from_str(yaml)
        .map_err(|e| complaint(e.marker().line() + 1, format!("this is not YAML: {}", e.info())))?;
    documents.iter().map(node).collect()
}

/// The tree of a YAML text that follows a line of `---`.
fn tree(yaml: &str) -> Result<Entries, Complaint> {
    let Some(first) = documents(yaml)?.into_iter().next() else { return Ok(Vec::new()) };
    match first.datum {
        Datum::Map(entries) => Ok(entries),
        Datum::Nil => Ok(Vec::new()),
        other => Err(complaint(2, format!("the front matter is a map of keys and values, not {}", other.kind()))),
    }
}

/// Recursion is bounded by the parser, which refuses deep nesting.
fn node(yaml: &MarkedYaml<'_>) -> Result<Node, Complaint> {
    // The line of `---` comes before the parser's first one.
    let line = yaml.span.start.line() + 1;
    let datum = match &yaml.data {
        YamlData::Value(Scalar::Null) => Datum::Nil,
        YamlData::Value(Scalar::Boolean(b)) => Datum::Bool(*b),
        YamlData::Value(Scalar::Integer(n)) => Datum::Int(*n),
        YamlData::Value(Scalar::FloatingPoint(x)) => Datum::Real(x.into_inner()),
        YamlData::Value(Scalar::String(text)) => Datum::Text(text.to_string()),
        YamlData::Sequence(items) => Datum::List(items.iter().map(node).collect::<Result<_, _>>()?),
        YamlData::Mapping(entries) => {
            let mut out: Vec<(String, Node)> = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                let Datum::Text(name) = node(key)?.datum else {
                    return Err(complaint(line, "a key is a word"));
                };
                out.push((name, node(value)?));
            }
            Datum::Map(out)
        }
        YamlData::Tagged(_, inner) => node(inner)?.datum,
        YamlData::Representation(..) | YamlData::Alias(_) | YamlData::BadValue => {
            return Err(complaint(line, "this value is none that a scenario can hold"));
        }
    };
    Ok(Node { datum, line })
}

/// Takes known keys out of a map, and complains of what is wrong, once about everything.
#[derive(Debug)]
pub struct Fields<'a> {
    /// Where this map stands: empty at the top, else `fault.` and the like.
    within: String,
    entries: &'a [(String, Node)],
    known: Vec<&'static str>,
    line: usize,
}

impl<'a> Fields<'a> {
    /// Of a map.
    pub fn new(within: &str, entries: &'a [(String, Node)], line: usize) -> Self {
        let within = if within.is_empty() { String::new() } else { format!("{within}.") };
        Fields { within, entries, known: Vec::new(), line }
    }

    /// The value of a key, which is known from now on.
    pub fn get(&mut self, key: &'static str) -> Option<&'a Node> {
        self.known.push(key);
        self.entries.iter().find(|(name, _)| name == key).map(|(_, node)| node).filter(|n| n.datum != Datum::Nil)
    }

    /// A complaint about a key.
    pub fn wrong(&self, key: &str, node: Option<&Node>, what: impl std::fmt::Display) -> Complaint {
        complaint(node.map_or(self.line, |n| n.line), format!("`{}{key}` {what}", self.within))
    }

    /// A text; numbers count as they are written.
    pub fn text(&mut self, key: &'static str, out: &mut Vec<Complaint>) -> Option<String> {
        let node = self.get(key)?;
        match &node.datum {
            Datum::Text(text) => Some(text.clone()),
            Datum::Int(n) => Some(n.to_string()),
            Datum::Real(x) => Some(x.to_string()),
            Datum::Bool(b) => Some(b.to_string()),
            other => {
                out.push(self.wrong(key, Some(node), format_args!("is a text, not {}", other.kind())));
                None
            }
        }
    }

    /// A number that is not negative.
    pub fn count(&mut self, key: &'static str, out: &mut Vec<Complaint>) -> Option<u64> {
        let node = self.get(key)?;
        match &node.datum {
            Datum::Int(n) if *n >= 0 => Some(*n as u64),
            other => {
                out.push(self.wrong(
                    key,
                    Some(node),
                    format_args!("is a whole number from 0 on, not {}", other.kind()),
                ));
                None
            }
        }
    }

    /// Any number.
    pub fn number(&mut self, key: &'static str, out: &mut Vec<Complaint>) -> Option<f64> {
        let node = self.get(key)?;
        match &node.datum {
            Datum::Int(n) => Some(*n as f64),
            Datum::Real(x) if x.is_finite() => Some(*x),
            other => {
                out.push(self.wrong(key, Some(node), format_args!("is a number, not {}", other.kind())));
                None
            }
        }
    }

    /// True or false.
    pub fn truth(&mut self, key: &'static str, out: &mut Vec<Complaint>) -> Option<bool> {
        let node = self.get(key)?;
        if let Datum::Bool(b) = node.datum {
            return Some(b);
        }
        out.push(self.wrong(key, Some(node), format_args!("is true or false, not {}", node.datum.kind())));
        None
    }

    /// A list of texts, or one text for a list of one.
    pub fn texts(&mut self, key: &'static str, out: &mut Vec<Complaint>) -> Option<Vec<String>> {
        let node = self.get(key)?;
        let text = |n: &Node| match &n.datum {
            Datum::Text(text) => Some(text.clone()),
            Datum::Int(n) => Some(n.to_string()),
            _ => None,
        };
        let list = match &node.datum {
            Datum::List(items) => items.iter().map(text).collect(),
            _ => text(node).map(|t| vec![t]),
        };
        if list.is_none() {
            out.push(self.wrong(key, Some(node), format_args!("is a list of texts, not {}", node.datum.kind())));
        }
        list
    }

    /// A map within.
    pub fn map(&mut self, key: &'static str, out: &mut Vec<Complaint>) -> Option<Fields<'a>> {
        let node = self.get(key)?;
        if let Datum::Map(entries) = &node.datum {
            return Some(Fields::new(&format!("{}{key}", self.within), entries, node.line));
        }
        out.push(self.wrong(key, Some(node), format_args!("is a map, not {}", node.datum.kind())));
        None
    }

    /// A list of maps, or one map for a list of one.
    pub fn maps(&mut self, key: &'static str, out: &mut Vec<Complaint>) -> Vec<Fields<'a>> {
        let Some(node) = self.get(key) else { return Vec::new() };
        let one = [node];
        let items: Vec<&Node> = match &node.datum {
            Datum::List(items) => items.iter().collect(),
            _ => one.to_vec(),
        };
        let mut maps = Vec::with_capacity(items.len());
        for item in items {
            match &item.datum {
                Datum::Map(entries) => maps.push(Fields::new(&format!("{}{key}", self.within), entries, item.line)),
                other => out.push(self.wrong(key, Some(item), format_args!("holds maps, not {}", other.kind()))),
            }
        }
        maps
    }

    /// Everything that was not asked for, as texts: for maps whose keys are another's.
    pub fn rest(self, out: &mut Vec<Complaint>) -> Vec<(String, String)> {
        let mut rest = Vec::new();
        for (name, node) in self.entries.iter().filter(|(name, _)| !self.known.contains(&name.as_str())) {
            match &node.datum {
                Datum::Text(text) => rest.push((name.clone(), text.clone())),
                Datum::Int(n) => rest.push((name.clone(), n.to_string())),
                Datum::Real(x) => rest.push((name.clone(), x.to_string())),
                Datum::Bool(b) => rest.push((name.clone(), b.to_string())),
                Datum::Nil => {}
                other => out.push(self.wrong(name, Some(node), format_args!("is a value, not {}", other.kind()))),
            }
        }
        rest
    }

    /// Names every key that was not asked for, with the nearest that was.
    pub fn finish(self, out: &mut Vec<Complaint>) {
        for (name, node) in self.entries.iter().filter(|(name, _)| !self.known.contains(&name.as_str())) {
            let hint = nearest(name, &self.known).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            out.push(complaint(node.line, format!("`{}{name}` is no key of a scenario{hint}", self.within)));
        }
    }
}

/// The known name that takes the fewest changes to make, if these are few.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let clean = |s: &str| s.to_lowercase().replace('_', "-");
    let best = known.iter().map(|k| (distance(&clean(name), &clean(k)), *k)).min()?;
    (best.0 <= (name.chars().count() / 3).max(2)).then_some(best.1)
}

/// Insertions, deletions and replacements that make one text of another (Levenshtein). O(n·m).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let here = (corner + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = row[j + 1];
            row[j + 1] = here;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_taken_from_between_its_lines_with_the_lines_of_the_file() {
        let (entries, rest) = split("---\nname: a\nfault:\n  injector: process\n---\n# Why\n").unwrap();
        assert_eq!(rest, "# Why\n");
        assert_eq!((entries[0].0.as_str(), entries[0].1.line), ("name", 2));
        let Datum::Map(fault) = &entries[1].1.datum else { panic!() };
        assert_eq!((fault[0].0.as_str(), fault[0].1.line), ("injector", 4));
    }

    #[test]
    fn what_is_no_front_matter_is_told_with_its_line() {
        assert_eq!(split("name: a\n").unwrap_err().line, 1);
        assert!(split("---\nname: a\n").unwrap_err().what.contains("no end"));
        assert_eq!(split("---\nname: a\n\"b\n---\n").unwrap_err().line, 3);
        assert!(split("---\n- a\n---\n").unwrap_err().what.contains("a map"));
        assert_eq!(split("---\n---\n").unwrap().0, []);
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_crash() {
        let deep = format!("---\na: {}\n---\n", "[".repeat(100_000));
        assert!(split(&deep).is_err());
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let (entries, _) = split("---\nblast_radius: 3\nnmae: x\nzzzzzz: 1\n---\n").unwrap();
        let mut fields = Fields::new("", &entries, 1);
        for key in ["name", "blast_radius_pct", "target"] {
            fields.get(key);
        }
        let mut out = Vec::new();
        fields.finish(&mut out);
        let text: Vec<String> = out.iter().map(ToString::to_string).collect();
        assert_eq!(text[0], "line 2: `blast_radius` is no key of a scenario; did you mean `blast_radius_pct`?");
        assert_eq!(text[1], "line 3: `nmae` is no key of a scenario; did you mean `name`?");
        assert_eq!(text[2], "line 4: `zzzzzz` is no key of a scenario");
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_told_with_what_it_should_be() {
        let (entries, _) = split("---\na: [1]\nb: -3\nc: x\nd: 7\ne: {f: 1}\n---\n").unwrap();
        let (mut fields, mut out) = (Fields::new("", &entries, 1), Vec::new());
        assert_eq!(fields.text("a", &mut out), None);
        assert_eq!(fields.count("b", &mut out), None);
        assert_eq!(fields.truth("c", &mut out), None);
        assert_eq!(fields.number("d", &mut out), Some(7.0));
        assert!(fields.map("e", &mut out).is_some());
        assert_eq!(out.len(), 3, "{out:?}");
    }
}
