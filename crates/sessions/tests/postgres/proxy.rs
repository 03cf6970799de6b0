//! What is between us and a server, and can go at the worst moment.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Which part of a commit is lost, how many times still.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// The connection goes before the server is told to commit.
    pub(crate) requests: AtomicUsize,
    /// The connection goes after that, before anything comes back.
    pub(crate) answers: AtomicUsize,
}

/// Takes one from a count, if there is one.
fn takes(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// A port that leads to another one, and the losses on the way.
pub(crate) async fn start(to: u16) -> (u16, Arc<Losses>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let losses = Arc::new(Losses::default());
    let kept = Arc::clone(&losses);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let losses = Arc::clone(&losses);
            tokio::spawn(async move {
                // An error is an end of the connection.
                let _ = carry(client, to, &losses).await;
            });
        }
    });
    (port, kept)
}

async fn carry(mut client: TcpStream, to: u16, losses: &Losses) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", to)).await?;
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let part = &asked[..read?];
                if part.is_empty() {
                    return Ok(());
                }
                // Sent in one piece with what it commits, or behind it; never split, as it is so short.
                let commits = part.windows(7).any(|window| window == b"COMMIT\0");
                if commits && takes(&losses.requests) {
                    return Ok(());
                }
                server.write_all(part).await?;
                if commits && takes(&losses.answers) {
                    // The answer is waited for, so that it is committed, and lost.
                    let mut lost = Vec::new();
                    while !lost.windows(7).any(|window| window == b"COMMIT\0") {
                        let read = server.read(&mut answered).await?;
                        if read == 0 {
                            break;
                        }
                        lost.extend_from_slice(&answered[..read]);
                    }
                    return Ok(());
                }
            }
            read = server.read(&mut answered) => {
                let part = &answered[..read?];
                if part.is_empty() {
                    return Ok(());
                }
                client.write_all(part).await?;
            }
        }
    }
}
