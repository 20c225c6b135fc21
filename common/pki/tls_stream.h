// A TLS 1.3 connection of our own, for what is said before there is gRPC: messages with their
// length in front, each way, until a deadline that nothing moves. Owned by one caller, which waits
// in it; thread-compatible. It believes nobody: who the peer is, PeerChain says, and the caller
// judges.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/pki/certificate.h"
#include "common/pki/credential_folder.h"
#include "common/status.h"

namespace ringmaster::pki {

class TlsStream {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  static constexpr size_t kMaxMessageBytes = 16 << 10;

  // Both take the socket over, and shake hands. The server shows a certificate with its
  // authorities: the one whose first authority the client asks for, else the first of
  // `credentials`; and asks for none. DEADLINE_EXCEEDED; UNAVAILABLE: it broke, or is no TLS 1.3.
  [[nodiscard]] static StatusOr<std::unique_ptr<TlsStream>> Accept(
      OwnedFile socket, const std::vector<Credentials>& credentials, Deadline deadline);
  [[nodiscard]] static StatusOr<std::unique_ptr<TlsStream>> Connect(OwnedFile socket,
                                                                    const Sha256Digest& authority,
                                                                    Deadline deadline);
  ~TlsStream();

  // What the server showed: its certificate, of which it has the key, and what came with it, which
  // proves nothing.
  [[nodiscard]] std::vector<Certificate> PeerChain() const;

  // Errors as above; INVALID_ARGUMENT: a message of more than kMaxMessageBytes.
  [[nodiscard]] Status Write(const std::string& message);
  [[nodiscard]] StatusOr<Secret> Read();
  // The peer sees the end of what was written, not a cut.
  void Close();

 private:
  struct Tls;
  TlsStream(OwnedFile socket, std::unique_ptr<Tls> tls, Deadline deadline);

  // `own`: a server's; nullptr: a client.
  [[nodiscard]] static StatusOr<std::unique_ptr<TlsStream>> Make(
      OwnedFile socket, const std::vector<Credentials>* own, Deadline deadline);
  // Calls it again and again, with waits for the socket between, until it returns 1.
  template <typename Call>
  [[nodiscard]] Status Complete(const char* what, Call call);
  [[nodiscard]] Status ReadAll(char* bytes, size_t size);

  OwnedFile socket_;
  std::unique_ptr<Tls> tls_;
  const Deadline deadline_;
};

}  // namespace ringmaster::pki
