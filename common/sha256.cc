#include "common/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "common/check.h"

namespace ringmaster {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

}  // namespace

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  Context() {
    RING_CHECK(md != nullptr, "out of memory");
    Restart();
  }
  ~Context() { EVP_MD_CTX_free(md); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  void Restart() const {
    RING_CHECK(EVP_DigestInit_ex(md, EVP_sha256(), nullptr) == 1, "libcrypto has no SHA-256");
  }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::span<const uint8_t> bytes) {
  RING_CHECK(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()) == 1, "SHA-256 update");
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  RING_CHECK(EVP_DigestFinal_ex(context_->md, digest.data(), nullptr) == 1, "SHA-256 finish");
  context_->Restart();
  return digest;
}

Sha256Digest Sha256Of(const std::string& bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

std::string Hex(std::span<const uint8_t> bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::string Hex(const std::string& bytes) {
  return Hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

std::optional<std::string> FromHex(const std::string& hex) {
  if (hex.size() % 2 != 0 || hex.find_first_not_of(kDigits) != std::string::npos) return {};
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(value(hex[i]) * 16 + value(hex[i + 1]));
  }
  return bytes;
}

std::optional<Sha256Digest> DigestFromHex(const std::string& hex) {
  Sha256Digest digest;
  const auto bytes = FromHex(hex);
  if (!bytes || bytes->size() != digest.size()) return {};
  std::ranges::copy(*bytes, digest.begin());
  return digest;
}

StatusOr<std::string> Sha256HexOfFile(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                       &std::fclose);
  if (file == nullptr) {
    return Error(errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kUnavailable,
                 "cannot open {}: {}", path, std::strerror(errno));
  }
  Sha256 hash;
  std::vector<uint8_t> buffer(1 << 20);
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0;) {
    hash.Update({buffer.data(), got});
  }
  if (std::ferror(file.get()) != 0) {
    return Error(absl::StatusCode::kUnavailable, "cannot read {}: {}", path, std::strerror(errno));
  }
  return Hex(hash.Finish());
}

}  // namespace ringmaster
