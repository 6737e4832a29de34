//! What must hold, as a person writes it: `p99(latency) < 250ms and errors <= 1%`.
//!
//! One small language for final states, fairness and steady states. Whoever evaluates says what names mean ([`Names`]); nothing else
//! can be reached from an expression. It is parsed once, into code for a stack machine, and evaluating is a loop.
//!
//! ```text
//! or      = and { ("or" | "||") and }
//! and     = not { ("and" | "&&") not }
//! not     = { "not" | "!" } compare
//! compare = sum [ ("==" | "!=" | "<" | "<=" | ">" | ">=") sum ]
//! sum     = product { ("+" | "-") product }
//! product = sign { ("*" | "/") sign }
//! sign    = { "-" } atom
//! atom    = number [unit] | "text" | "true" | "false" | "nil" | name | function "(" or { "," or } ")" | "(" or ")"
//! (words of the language in any case)
//! name    = word { "." (word | digits | "text") }
//! unit    = "ns" | "us" | "ms" | "s" | "m" | "h" | "%"
//! ```
//!
//! Durations are nanoseconds, and names of durations mean nanoseconds. Integers are exact; where they are divided and do not
//! divide, or meet fractions, numbers are doubles. Functions: `p50 p90 p95 p99 p999 …` and `quantile(q, …)` of many numbers, `min max
//! mean sum count` of the same, `abs`.
//!
//! Values may be *unknown*: a name that cannot be measured, a quantile of nothing, a text compared with a number. Then truth is
//! three-valued, as Kleene has it: `false and unknown` is false, whatever the name would have been.

use std::fmt;

/// How deep parentheses and calls may nest.
const MAX_DEPTH: usize = 64;
/// How long an expression may be, in bytes.
const MAX_LENGTH: usize = 1 << 16;

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    /// Where, in bytes from the beginning.
    pub at: usize,
    /// What is wrong.
    pub message: String,
    source: String,
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The line that it is in, and a caret below the place.
        let begin = self.source[..self.at].rfind('\n').map_or(0, |i| i + 1);
        let line = self.source[begin..].lines().next().unwrap_or("");
        let column = self.source[begin..self.at].chars().count();
        write!(f, "{} at column {}\n  {line}\n  {}^", self.message, column + 1, " ".repeat(column))
    }
}

impl std::error::Error for ExprError {}

/// Many numbers, of which one can ask a few.
pub trait Samples {
    /// How many.
    fn count(&self) -> u64;
    /// The least number that at least this part (from 0 to 1) of them does not exceed; nothing of nothing.
    fn quantile(&self, q: f64) -> Option<Value<'static>>;
    /// Their sum; nothing where it cannot be told exactly enough.
    fn sum(&self) -> Option<Value<'static>>;
}

/// What an expression is made of, and gives.
#[derive(Clone)]
pub enum Value<'a> {
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// Any other number; never NaN.
    Real(f64),
    /// A text.
    Text(String),
    /// Nothing.
    Nil,
    /// Many numbers.
    Samples(&'a dyn Samples),
    /// Not known, and why.
    Unknown(String),
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Samples(samples) => write!(f, "{} samples", samples.count()),
            Value::Unknown(why) => write!(f, "unknown: {why}"),
            other => write!(f, "{}", other.shown()),
        }
    }
}

impl Value<'_> {
    /// For a person.
    pub fn shown(&self) -> String {
        match self {
            Value::Bool(b) => b.to_string(),
            Value::Int(n) => n.to_string(),
            Value::Real(x) => x.to_string(),
            Value::Text(text) => format!("{text:?}"),
            Value::Nil => "nil".into(),
            Value::Samples(samples) => format!("{} numbers", samples.count()),
            Value::Unknown(_) => "unknown".into(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Value::Bool(_) => "a truth value",
            Value::Int(_) | Value::Real(_) => "a number",
            Value::Text(_) => "a text",
            Value::Nil => "nil",
            Value::Samples(_) => "many numbers",
            Value::Unknown(_) => "unknown",
        }
    }

    fn real(&self) -> Option<f64> {
        match self {
            Value::Int(n) => Some(*n as f64),
            Value::Real(x) => Some(*x),
            _ => None,
        }
    }
}

/// Does it hold?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It does.
    True,
    /// It does not.
    False,
    /// Not known, and why.
    Unknown(String),
}

/// What names mean.
pub trait Names {
    /// The value of a dotted name, by its parts; [`Value::Unknown`] where it cannot be measured.
    fn value<'a>(&'a self, name: &[String]) -> Value<'a>;
}

#[derive(Clone, Debug, PartialEq)]
enum Code {
    Bool(bool),
    Int(i128),
    Real(f64),
    Text(String),
    Nil,
    Name(Vec<String>),
    Not,
    Minus,
    Two(Two),
    One(One),
    Quantile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Two {
    Or,
    And,
    Equal,
    Differs,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum One {
    Quantile(f64),
    Mean,
    Sum,
    Count,
    Abs,
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    source: String,
    code: Vec<Code>,
}

impl Expr {
    /// Parses. O(length).
    ///
    /// # Errors
    /// Where the text is no expression, with the place.
    pub fn parse(source: &str) -> Result<Expr, ExprError> {
        let mut parser = Parser { source, at: 0, depth: 0, code: Vec::new() };
        if source.len() > MAX_LENGTH {
            return Err(parser.error_at(0, format!("an expression has at most {MAX_LENGTH} bytes")));
        }
        parser.or()?;
        parser.space();
        if parser.at < source.len() {
            let at = parser.at;
            return Err(parser.error_at(at, "an operator or the end is expected here".into()));
        }
        Ok(Expr { source: source.to_string(), code: parser.code })
    }

    /// As it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The names in it, each once, in order.
    pub fn names(&self) -> Vec<&[String]> {
        let mut names: Vec<&[String]> = Vec::new();
        for code in &self.code {
            if let Code::Name(name) = code
                && !names.contains(&name.as_slice())
            {
                names.push(name);
            }
        }
        names
    }

    /// Its value. O(length).
    pub fn value<'a>(&self, names: &'a dyn Names) -> Value<'a> {
        let mut stack: Vec<Value<'a>> = Vec::new();
        for code in &self.code {
            let value = match code {
                Code::Bool(b) => Value::Bool(*b),
                Code::Int(n) => Value::Int(*n),
                Code::Real(x) => Value::Real(*x),
                Code::Text(text) => Value::Text(text.clone()),
                Code::Nil => Value::Nil,
                Code::Name(name) => names.value(name),
                Code::Not => not(pop(&mut stack)),
                Code::Minus => two(Two::Subtract, Value::Int(0), pop(&mut stack)),
                Code::One(one) => of_one(*one, pop(&mut stack)),
                Code::Quantile => {
                    let many = pop(&mut stack);
                    let q = pop(&mut stack);
                    match q.real() {
                        Some(q) if (0.0..=1.0).contains(&q) => of_one(One::Quantile(q), many),
                        _ => unknown("a quantile is of a part from 0 to 1"),
                    }
                }
                Code::Two(op) => {
                    let right = pop(&mut stack);
                    let left = pop(&mut stack);
                    two(*op, left, right)
                }
            };
            stack.push(value);
        }
        pop(&mut stack)
    }

    /// Does it hold?
    pub fn truth(&self, names: &dyn Names) -> Truth {
        match self.value(names) {
            Value::Bool(true) => Truth::True,
            Value::Bool(false) => Truth::False,
            Value::Unknown(why) => Truth::Unknown(why),
            other => Truth::Unknown(format!("the expression gives {}, not true or false", other.kind())),
        }
    }
}

fn pop<'a>(stack: &mut Vec<Value<'a>>) -> Value<'a> {
    stack.pop().unwrap_or_else(|| unknown("nothing to evaluate"))
}

fn unknown(why: impl Into<String>) -> Value<'static> {
    Value::Unknown(why.into())
}

fn not(value: Value<'_>) -> Value<'_> {
    match value {
        Value::Bool(b) => Value::Bool(!b),
        Value::Unknown(why) => Value::Unknown(why),
        other => unknown(format!("`not` of {}", other.kind())),
    }
}

/// A quantile, sum and so on of many numbers; a single number is as good as one of many.
fn of_one(one: One, value: Value<'_>) -> Value<'_> {
    let many = match value {
        Value::Samples(many) => many,
        Value::Unknown(why) => return Value::Unknown(why),
        Value::Int(n) if one == One::Abs => return n.checked_abs().map_or(Value::Real((n as f64).abs()), Value::Int),
        Value::Real(x) if one == One::Abs => return Value::Real(x.abs()),
        other => return unknown(format!("a function of many numbers, given {}", other.kind())),
    };
    let nothing = || unknown("a function of numbers of which there are none");
    match one {
        One::Quantile(q) => many.quantile(q).unwrap_or_else(nothing),
        One::Sum => many.sum().unwrap_or_else(nothing),
        One::Count => Value::Int(many.count().into()),
        One::Mean if many.count() == 0 => nothing(),
        One::Mean => match many.sum() {
            Some(sum) => two(Two::Divide, sum, Value::Int(many.count().into())),
            None => nothing(),
        },
        One::Abs => unknown("abs of many numbers"),
    }
}

fn two<'a>(op: Two, left: Value<'a>, right: Value<'a>) -> Value<'a> {
    use Value::{Bool, Unknown};
    match (op, left, right) {
        (Two::And, Bool(false), _) | (Two::And, _, Bool(false)) => Bool(false),
        (Two::Or, Bool(true), _) | (Two::Or, _, Bool(true)) => Bool(true),
        (_, Unknown(why), _) | (_, _, Unknown(why)) => Unknown(why),
        (Two::And | Two::Or, Bool(_), Bool(right)) => Bool(right),
        (Two::And | Two::Or, left, right) => {
            let wrong = if matches!(left, Bool(_)) { right } else { left };
            unknown(format!("`and` or `or` of {}", wrong.kind()))
        }
        (Two::Add | Two::Subtract | Two::Multiply | Two::Divide, left, right) => arithmetic(op, &left, &right),
        (op, left, right) => compare(op, &left, &right),
    }
}

fn arithmetic(op: Two, left: &Value<'_>, right: &Value<'_>) -> Value<'static> {
    if let (Value::Int(a), Value::Int(b)) = (left, right) {
        let exact = match op {
            Two::Add => a.checked_add(*b),
            Two::Subtract => a.checked_sub(*b),
            Two::Multiply => a.checked_mul(*b),
            _ => a.checked_rem(*b).filter(|rest| *rest == 0).and_then(|_| a.checked_div(*b)),
        };
        if let Some(n) = exact {
            return Value::Int(n);
        }
    }
    let (Some(a), Some(b)) = (left.real(), right.real()) else {
        let wrong = if left.real().is_some() { right } else { left };
        return unknown(format!("arithmetic with {}", wrong.kind()));
    };
    let result = match op {
        Two::Add => a + b,
        Two::Subtract => a - b,
        Two::Multiply => a * b,
        _ => a / b,
    };
    if result.is_finite() { Value::Real(result) } else { unknown("a division by zero, or a number too large") }
}

fn compare(op: Two, left: &Value<'_>, right: &Value<'_>) -> Value<'static> {
    use std::cmp::Ordering;
    let order = match (left, right) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) if matches!(op, Two::Equal | Two::Differs) => Some(a.cmp(b)),
        (Value::Nil, Value::Nil) if matches!(op, Two::Equal | Two::Differs) => Some(Ordering::Equal),
        // Nothing is no value: it differs from each.
        (Value::Nil, Value::Samples(_)) | (Value::Samples(_), Value::Nil) => None,
        (Value::Nil, _) | (_, Value::Nil) if matches!(op, Two::Equal | Two::Differs) => Some(Ordering::Less),
        _ => left.real().zip(right.real()).and_then(|(a, b)| a.partial_cmp(&b)),
    };
    let Some(order) = order else {
        return unknown(format!("{} compared with {}", left.kind(), right.kind()));
    };
    Value::Bool(match op {
        Two::Equal => order.is_eq(),
        Two::Differs => order.is_ne(),
        Two::Less => order.is_lt(),
        Two::AtMost => order.is_le(),
        Two::Greater => order.is_gt(),
        _ => order.is_ge(),
    })
}

struct Parser<'s> {
    source: &'s str,
    at: usize,
    depth: usize,
    code: Vec<Code>,
}

type Parsed<T> = Result<T, ExprError>;

impl<'s> Parser<'s> {
    fn error_at(&self, at: usize, message: String) -> ExprError {
        ExprError { at, message, source: self.source.to_string() }
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn space(&mut self) {
        self.at = self.source.len() - self.rest().trim_start().len();
    }

    /// Takes a symbol if it is next.
    fn symbol(&mut self, symbol: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(symbol);
        self.at += if found { symbol.len() } else { 0 };
        found
    }

    /// Takes a word of the language if it is next, as a whole word.
    /// Case does not count: conditions are often written with AND.
    fn keyword(&mut self, word: &str) -> bool {
        self.space();
        let found = self.rest().split_at_checked(word.len()).is_some_and(|(begin, rest)| {
            begin.eq_ignore_ascii_case(word) && !rest.starts_with(|c| is_word(c) || c == '.')
        });
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.error_at(self.at, format!("parentheses nest deeper than {MAX_DEPTH}")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn or(&mut self) -> Parsed<()> {
        self.and()?;
        while self.keyword("or") || self.symbol("||") {
            self.and()?;
            self.code.push(Code::Two(Two::Or));
        }
        Ok(())
    }

    fn and(&mut self) -> Parsed<()> {
        self.not()?;
        while self.keyword("and") || self.symbol("&&") {
            self.not()?;
            self.code.push(Code::Two(Two::And));
        }
        Ok(())
    }

    fn not(&mut self) -> Parsed<()> {
        let mut times = 0;
        while self.keyword("not") || (!self.rest().starts_with("!=") && self.symbol("!")) {
            times += 1;
        }
        self.compare()?;
        self.code.extend((0..times).map(|_| Code::Not));
        Ok(())
    }

    fn comparison(&mut self) -> Option<Two> {
        let all = [
            ("==", Two::Equal),
            ("!=", Two::Differs),
            ("<=", Two::AtMost),
            (">=", Two::AtLeast),
            ("<", Two::Less),
            (">", Two::Greater),
        ];
        all.into_iter().find(|(symbol, _)| self.symbol(symbol)).map(|(_, two)| two)
    }

    fn compare(&mut self) -> Parsed<()> {
        self.sum()?;
        self.space();
        if self.rest().starts_with('=') && !self.rest().starts_with("==") {
            return Err(self.error_at(self.at, "equality is written ==".into()));
        }
        let Some(two) = self.comparison() else { return Ok(()) };
        self.sum()?;
        self.code.push(Code::Two(two));
        self.space();
        let at = self.at;
        if self.comparison().is_some() {
            return Err(self.error_at(at, "comparisons do not chain: join them with `and`".into()));
        }
        Ok(())
    }

    fn sum(&mut self) -> Parsed<()> {
        self.product()?;
        loop {
            let two = match () {
                () if self.symbol("+") => Two::Add,
                () if self.symbol("-") => Two::Subtract,
                () => return Ok(()),
            };
            self.product()?;
            self.code.push(Code::Two(two));
        }
    }

    fn product(&mut self) -> Parsed<()> {
        self.sign()?;
        loop {
            let two = match () {
                () if self.symbol("*") => Two::Multiply,
                () if self.symbol("/") => Two::Divide,
                () => return Ok(()),
            };
            self.sign()?;
            self.code.push(Code::Two(two));
        }
    }

    fn sign(&mut self) -> Parsed<()> {
        let mut times = 0;
        while self.symbol("-") {
            times += 1;
        }
        self.atom()?;
        self.code.extend((0..times).map(|_| Code::Minus));
        Ok(())
    }

    fn atom(&mut self) -> Parsed<()> {
        self.space();
        let begin = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Err(self.error_at(begin, "a value is expected here, and the expression ends".into()));
        };
        if self.symbol("(") {
            self.deeper(Parser::or)?;
            return self.close(begin);
        }
        if first.is_ascii_digit() {
            let number = self.number()?;
            self.code.push(number);
            return Ok(());
        }
        if first == '"' {
            let text = self.text()?;
            self.code.push(Code::Text(text));
            return Ok(());
        }
        for (word, code) in
            [("true", Code::Bool(true)), ("false", Code::Bool(false)), ("nil", Code::Nil), ("null", Code::Nil)]
        {
            if self.keyword(word) {
                self.code.push(code);
                return Ok(());
            }
        }
        if !is_word(first) {
            return Err(self.error_at(begin, format!("a value is expected here, not `{first}`")));
        }
        for word in ["and", "or", "not"] {
            if self.keyword(word) {
                return Err(self.error_at(begin, format!("a value is expected here, not `{word}`")));
            }
        }
        let name = self.name()?;
        self.space();
        if !self.rest().starts_with('(') {
            self.code.push(Code::Name(name));
            return Ok(());
        }
        self.call(begin, &name.join("."))
    }

    fn close(&mut self, open: usize) -> Parsed<()> {
        if self.symbol(")") {
            return Ok(());
        }
        let at = self.at;
        let column = self.source[..open].chars().count() + 1;
        Err(self.error_at(at, format!("a `)` is expected here, for the `(` of column {column}")))
    }

    fn call(&mut self, begin: usize, name: &str) -> Parsed<()> {
        let code = match name {
            "min" => Code::One(One::Quantile(0.0)),
            "max" => Code::One(One::Quantile(1.0)),
            "mean" => Code::One(One::Mean),
            "sum" => Code::One(One::Sum),
            "count" => Code::One(One::Count),
            "abs" => Code::One(One::Abs),
            "quantile" => Code::Quantile,
            name => match percentile(name) {
                Some(q) => Code::One(One::Quantile(q)),
                None => {
                    let known = "p50, p99, p999 and so on, quantile, min, max, mean, sum, count, abs";
                    return Err(self.error_at(begin, format!("there is no function `{name}`: there are {known}")));
                }
            },
        };
        let wanted = if code == Code::Quantile { 2 } else { 1 };
        let open = self.at;
        self.symbol("(");
        for i in 0..wanted {
            if i > 0 && !self.symbol(",") {
                return Err(
                    self.error_at(self.at, format!("`{name}` takes {wanted} values, so a `,` is expected here"))
                );
            }
            self.deeper(Parser::or)?;
        }
        self.close(open)?;
        self.code.push(code);
        Ok(())
    }

    fn name(&mut self) -> Parsed<Vec<String>> {
        let mut parts = vec![self.word()];
        while self.rest().starts_with('.') {
            self.at += 1;
            match self.rest().chars().next() {
                Some('"') => {
                    let text = self.text()?;
                    parts.push(text);
                }
                Some(c) if is_word(c) => parts.push(self.word()),
                _ => return Err(self.error_at(self.at, "a name is expected after the dot".into())),
            }
        }
        Ok(parts)
    }

    fn word(&mut self) -> String {
        let rest = self.rest();
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_string()
    }

    fn text(&mut self) -> Parsed<String> {
        let begin = self.at;
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = begin + i + 1;
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, c @ ('"' | '\\'))) => text.push(c),
                    _ => return Err(self.error_at(begin + i, "in a text, a backslash precedes \" or \\".into())),
                },
                c => text.push(c),
            }
        }
        Err(self.error_at(begin, "this text has no end".into()))
    }

    fn number(&mut self) -> Parsed<Code> {
        let begin = self.at;
        let rest = self.rest();
        let digits = |from: usize| rest[from..].bytes().take_while(u8::is_ascii_digit).count();
        let mut end = digits(0);
        let mut whole = true;
        if rest[end..].starts_with('.') && digits(end + 1) > 0 {
            end += 1 + digits(end + 1);
            whole = false;
        }
        if rest[end..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
            let exponent = digits(end + 1 + sign);
            if exponent > 0 {
                end += 1 + sign + exponent;
                whole = false;
            }
        }
        let text = &rest[..end];
        self.at += end;
        let after = self.rest();
        let unit = after.find(|c| !is_word(c)).map_or(after, |i| &after[..i]);
        let scale: i128 = match unit {
            "" if self.symbol("%") => -100,
            "" | "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            other => return Err(self.error_at(self.at, format!("`{other}` is no unit: ns, us, ms, s, m, h and % are"))),
        };
        self.at += unit.len();
        if whole && scale > 0 {
            let exact = text.parse::<i128>().ok().and_then(|n| n.checked_mul(scale));
            return exact.map(Code::Int).ok_or_else(|| self.error_at(begin, "this number is too large".into()));
        }
        let number: f64 = text.parse().map_err(|_| self.error_at(begin, "this is no number".into()))?;
        let scaled = if scale < 0 { number / -(scale as f64) } else { number * scale as f64 };
        if !scaled.is_finite() {
            return Err(self.error_at(begin, "this number is too large".into()));
        }
        // A duration such as 1.5ms is a whole number of nanoseconds.
        let is_whole = scale > 1 && scaled.fract() == 0.0 && scaled.abs() < 9e15;
        Ok(if is_whole { Code::Int(scaled as i128) } else { Code::Real(scaled) })
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `p50` is 0.5, `p99` 0.99, `p999` 0.999; `p100` is the greatest, `p0` the least.
fn percentile(name: &str) -> Option<f64> {
    let digits =
        name.strip_prefix('p').filter(|d| !d.is_empty() && d.len() <= 9 && d.bytes().all(|b| b.is_ascii_digit()))?;
    match digits {
        "0" => Some(0.0),
        "100" => Some(1.0),
        digits if digits.len() == 1 => Some(digits.parse::<f64>().ok()? / 100.0),
        digits => Some(digits.parse::<f64>().ok()? / 10f64.powi(digits.len() as i32)),
    }
}

/// Numbers in a list, sorted once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    sorted: Vec<f64>,
    /// All of them, where they are integers.
    ints: Option<Vec<i128>>,
}

impl Numbers {
    /// Integers.
    pub fn of_ints(mut ints: Vec<i128>) -> Numbers {
        ints.sort_unstable();
        Numbers { sorted: ints.iter().map(|&n| n as f64).collect(), ints: Some(ints) }
    }

    /// Any numbers; those that are none (NaN) are left out.
    pub fn of_reals(mut reals: Vec<f64>) -> Numbers {
        reals.retain(|x| !x.is_nan());
        reals.sort_unstable_by(f64::total_cmp);
        Numbers { sorted: reals, ints: None }
    }
}

impl Samples for Numbers {
    fn count(&self) -> u64 {
        self.sorted.len() as u64
    }

    fn quantile(&self, q: f64) -> Option<Value<'static>> {
        let last = self.sorted.len().checked_sub(1)?;
        let at = ((q * self.sorted.len() as f64).ceil() as usize).saturating_sub(1).min(last);
        Some(match &self.ints {
            Some(ints) => Value::Int(ints[at]),
            None => Value::Real(self.sorted[at]),
        })
    }

    fn sum(&self) -> Option<Value<'static>> {
        if let Some(ints) = &self.ints {
            return ints.iter().try_fold(0i128, |sum, &n| sum.checked_add(n)).map(Value::Int);
        }
        let sum: f64 = self.sorted.iter().sum();
        sum.is_finite().then_some(Value::Real(sum))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct World {
        latency: Numbers,
    }

    impl Names for World {
        fn value<'a>(&'a self, name: &[String]) -> Value<'a> {
            match name.join(".").as_str() {
                "latency" => Value::Samples(&self.latency),
                "errors" => Value::Real(0.02),
                "accounts.alice" => Value::Int(70),
                "accounts.a-b" => Value::Int(30),
                "leader" => Value::Text("n1".into()),
                "gone" => Value::Nil,
                other => Value::Unknown(format!("there is no `{other}`")),
            }
        }
    }

    fn truth(source: &str) -> Truth {
        let ms = 1_000_000;
        let world = World { latency: Numbers::of_ints((1..=100).map(|i| i * ms).collect()) };
        Expr::parse(source).unwrap_or_else(|e| panic!("{e}")).truth(&world)
    }

    #[test]
    fn what_is_true_holds_and_its_opposite_does_not() {
        for source in [
            "p99(latency) < 100ms and errors <= 2%",
            "p99(latency) == 99ms && quantile(0.5, latency) == 50ms || false",
            "accounts.alice + accounts.\"a-b\" == 100",
            "max(latency) - min(latency) == 99ms",
            "mean(latency) == 50.5ms and count(latency) == 100 and sum(latency) / count(latency) == mean(latency)",
            "not leader == \"n2\" and leader != \"n2\" and leader >= \"n1\"",
            "1 + 2 * 3 == 7 and (1 + 2) * 3 == 9 and 2 - 1 - 1 == 0 and 8 / 2 / 2 == 2",
            "--3 == 3 and -3 < -2 and abs(-3) == 3 and 7 / 2 == 3.5 and 1e3 == 1000",
            "9007199254740993 != 9007199254740992",
            "gone == nil and leader != nil and not not true",
            "1.5s == 1500ms and 1h == 60m and p50(latency) == p5(latency) * 10",
            "false or true and true",
        ] {
            assert_eq!(truth(source), Truth::True, "{source}");
            assert_eq!(truth(&format!("not ({source})")), Truth::False, "{source}");
        }
    }

    #[test]
    fn what_cannot_be_measured_leaves_only_what_follows_without_it() {
        for source in [
            "missing < 3",
            "missing == missing",
            "true and missing",
            "not missing",
            "p99(missing) < 1",
            "leader < 3",
            "1 / 0 == 1",
            "leader",
            "1 + 2",
            "true < false",
            "count(3) == 1",
        ] {
            assert!(matches!(truth(source), Truth::Unknown(_)), "{source}: {:?}", truth(source));
        }
        assert_eq!(truth("false and missing"), Truth::False);
        assert_eq!(truth("missing or true"), Truth::True);
        assert_eq!(truth("missing < 3 or 1 < 2"), Truth::True);
        assert_eq!(truth("missing"), Truth::Unknown("there is no `missing`".into()));
    }

    #[test]
    fn errors_point_at_their_place() {
        for (source, at, message) in [
            ("", 0, "the expression ends"),
            ("1 <", 3, "the expression ends"),
            ("1 < 2 < 3", 6, "do not chain"),
            ("(1 < 2", 6, "for the `(` of column 1"),
            ("a = 1", 2, "written =="),
            ("a ? b", 2, "an operator or the end"),
            ("p99 latency", 4, "an operator or the end"),
            ("median(latency)", 0, "no function `median`"),
            ("quantile(0.5)", 12, "takes 2 values"),
            ("3 parsecs", 2, "an operator"),
            ("3parsecs", 1, "no unit"),
            ("\"abc", 0, "no end"),
            ("a. b", 2, "after the dot"),
            ("1 and or 2", 6, "not `or`"),
            ("99999999999999999999999999999999999999999", 0, "too large"),
        ] {
            let error = Expr::parse(source).unwrap_err();
            assert_eq!(error.at, at, "{source}: {error}");
            assert!(error.message.contains(message), "{source}: {error}");
        }
        let error = Expr::parse("true and\n  é < = 1").unwrap_err();
        assert_eq!(error.to_string(), "a value is expected here, not `=` at column 7\n    é < = 1\n        ^");
    }

    #[test]
    fn names_are_told_once() {
        let expr = Expr::parse("a.b < c and p99(a.b) > 3").unwrap();
        let names: Vec<String> = expr.names().into_iter().map(|name| name.join(".")).collect();
        assert_eq!(names, ["a.b", "c"]);
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |n: usize| format!("{}1{} == 1", "(".repeat(n), ")".repeat(n));
        assert_eq!(truth(&nested(MAX_DEPTH)), Truth::True);
        assert!(Expr::parse(&nested(MAX_DEPTH + 1)).unwrap_err().message.contains("nest deeper"));
        assert!(Expr::parse(&"(".repeat(60_000)).is_err());
        assert_eq!(truth(&format!("{} true", "not ".repeat(10_000))), Truth::True);
    }

    /// Expressions of integers, with the value that they should have.
    fn arithmetic() -> impl Strategy<Value = (String, Option<i128>)> {
        let leaf = (0i128..1000).prop_map(|n| (n.to_string(), Some(n)));
        leaf.prop_recursive(6, 40, 2, |inner| {
            prop_oneof![
                inner.clone().prop_map(|(text, value)| (format!("-({text})"), value.map(|n| -n))),
                (inner.clone(), inner, 0..3).prop_map(|((a, x), (b, y), op)| {
                    let value = x.zip(y).and_then(|(x, y)| match op {
                        0 => x.checked_add(y),
                        1 => x.checked_sub(y),
                        _ => x.checked_mul(y),
                    });
                    (format!("({a}) {} ({b})", ["+", "-", "*"][op as usize]), value)
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_text_is_an_expression_or_an_error_that_can_be_shown(text in any::<String>()) {
            match Expr::parse(&text) {
                Ok(expr) => { let _ = expr.truth(&World { latency: Numbers::default() }); }
                Err(error) => { prop_assert!(text.is_char_boundary(error.at)); let _ = error.to_string(); }
            }
        }

        #[test]
        fn any_mix_of_tokens_is_an_expression_or_an_error(tokens in prop::collection::vec(
            prop::sample::select(vec!["(", ")", "and", "or", "not", "!", "-", "+", "*", "/", "<", "<=", "==", "!=", "p99", "latency",
                "missing.x", "1", "2.5ms", "5%", "\"a\"", "true", "nil", ",", ".", "é"]), 0..40), space in any::<bool>()) {
            let text = tokens.join(if space { " " } else { "" });
            match Expr::parse(&text) {
                Ok(expr) => { let _ = expr.truth(&World { latency: Numbers::default() }); }
                Err(error) => { prop_assert!(text.is_char_boundary(error.at)); let _ = error.to_string(); }
            }
        }

        #[test]
        fn integers_are_exact((text, expected) in arithmetic()) {
            let Some(expected) = expected else { return Ok(()) };
            let expr = Expr::parse(&text).map_err(|e| TestCaseError::fail(e.to_string()))?;
            let world = World { latency: Numbers::default() };
            prop_assert!(matches!(expr.value(&world), Value::Int(n) if n == expected), "{} {:?}", text, expr.value(&world));
        }

        #[test]
        fn a_quantile_is_the_least_number_that_so_many_do_not_exceed(mut all in prop::collection::vec(-50i128..50, 1..40), q in 0f64..=1.0) {
            let numbers = Numbers::of_ints(all.clone());
            all.sort_unstable();
            let enough = |n: i128| all.iter().filter(|&&x| x <= n).count() as f64 >= q * all.len() as f64;
            let least = all.iter().copied().find(|&n| enough(n)).unwrap();
            prop_assert!(matches!(numbers.quantile(q), Some(Value::Int(n)) if n == least));
        }
    }
}
