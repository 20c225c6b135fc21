// SHA-256 by OpenSSL's libcrypto. Thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/status.h"

namespace ringmaster {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(std::span<const uint8_t> bytes);
  void Update(const void* data, size_t bytes) {
    Update({static_cast<const uint8_t*>(data), bytes});
  }
  void Update(const std::string& text) { Update(text.data(), text.size()); }
  // Ends the hash; the object is then fresh again.
  Sha256Digest Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

[[nodiscard]] Sha256Digest Sha256Of(const std::string& bytes);
// Lower-case hex, and the bytes of it: nothing of any other text.
[[nodiscard]] std::string Hex(std::span<const uint8_t> bytes);
[[nodiscard]] std::string Hex(const std::string& bytes);
[[nodiscard]] std::optional<std::string> FromHex(const std::string& hex);
[[nodiscard]] std::optional<Sha256Digest> DigestFromHex(const std::string& hex);
// As messages carry it.
[[nodiscard]] inline std::string DigestBytes(const Sha256Digest& digest) {
  return {digest.begin(), digest.end()};
}
// Hex SHA-256 of a file's content; NOT_FOUND or UNAVAILABLE with the path and the system's reason.
[[nodiscard]] StatusOr<std::string> Sha256HexOfFile(const std::string& path);

}  // namespace ringmaster
