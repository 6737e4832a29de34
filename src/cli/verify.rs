//! `elench verify`.

use super::args::VerifyArgs;
use super::progress::Reading;
use super::{Exit, Stop};
use crate::verify::{Holds, verify};

/// Checks the certificates of a result against the history.
pub(super) fn run(args: &VerifyArgs) -> Result<Exit, Stop> {
    let name = args.result.display();
    let text = std::fs::read_to_string(&args.result).map_err(|e| Stop::Error(format!("{name}: cannot read: {e}")))?;
    let documents: Result<Vec<serde_json::Value>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
    let documents =
        documents.map_err(|e| Stop::Error(format!("{name}: not what `elench check --json` prints: {e}")))?;
    let document = match documents.as_slice() {
        [document] => document,
        [] => return Err(Stop::Error(format!("{name}: is empty"))),
        many => many
            .iter()
            .find(|d| d["history"] == args.history.as_str())
            .ok_or_else(|| Stop::Error(format!("{name}: none of its {} results is of {}", many.len(), args.history)))?,
    };
    let history = {
        let bar = Reading::new(&args.history);
        elench_formats::open::open(&args.history, &args.read.options(), &|read, total| bar.tell(read, total))?
    };
    let verified = verify(document, &history).map_err(|why| Stop::Error(format!("{name}: {why}")))?;
    for certificate in &verified {
        let (word, why) = match &certificate.holds {
            Holds::Yes => ("holds", String::new()),
            Holds::No(why) => ("DOES NOT HOLD", format!(": {why}")),
            Holds::NotKnown(why) => ("not verified", format!(": {why}")),
        };
        println!("{word:<14} {}{why}", certificate.what);
    }
    if verified.is_empty() {
        println!("nothing to verify: the result bears no certificate");
    }
    Ok(match () {
        () if verified.iter().any(|c| matches!(c.holds, Holds::No(_))) => Exit::Violation,
        () if verified.is_empty() || verified.iter().any(|c| matches!(c.holds, Holds::NotKnown(_))) => {
            Exit::Inconclusive
        }
        () => Exit::Passed,
    })
}
