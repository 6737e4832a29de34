//! How a test of your own records what its clients see: `cargo run --example record && elench check /tmp/recorded.edn`.

use std::sync::Mutex;

use elench_formats::Value;
use elench_formats::record::Recorder;

fn main() -> std::io::Result<()> {
    let path = std::env::temp_dir().join("recorded.edn");
    let recorder = Recorder::create(&path)?;
    let register = Mutex::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (mut client, register) = (recorder.client(), &register);
            scope.spawn(move || {
                for i in 0..250 {
                    if i % 2 == 0 {
                        let call = client.invoke("read", Value::Nil);
                        let value = register.lock().map(|r| *r).unwrap_or_default();
                        call.ok(Value::Int(value));
                    } else {
                        let value = thread * 1000 + i;
                        let call = client.invoke("write", Value::Int(value));
                        if let Ok(mut register) = register.lock() {
                            *register = value;
                        }
                        call.ok(Value::Int(value));
                    }
                }
            });
        }
    });
    println!("{} events in {}", recorder.finish()?, path.display());
    Ok(())
}
