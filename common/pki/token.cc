#include "common/pki/token.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <optional>

#include "common/check.h"

namespace ringmaster::pki {
namespace {

constexpr char kVersion[] = "rm1";
constexpr size_t kParts = 5;
constexpr size_t kMaxTokenBytes = 512;
constexpr size_t kHashLetters = 43;  // 256 bits, six a letter, two to spare
constexpr char kBase32[] = "abcdefghijklmnopqrstuvwxyz234567";
constexpr char kBase64Url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string Base64Url(const Sha256Digest& digest) {
  std::string text;
  unsigned bits = 0, count = 0;
  for (const uint8_t byte : digest) {
    bits = bits << 8 | byte;
    for (count += 8; count >= 6; count -= 6) text += kBase64Url[bits >> (count - 6) & 63];
  }
  return text + kBase64Url[bits << (6 - count) & 63];
}

// Of the one text that Base64Url gives for it.
std::optional<Sha256Digest> DigestOf(const std::string& text) {
  if (text.size() != kHashLetters) return std::nullopt;
  Sha256Digest digest = {};
  unsigned bits = 0, count = 0;
  size_t done = 0;
  for (const char letter : text) {
    const char* const found = letter == '\0' ? nullptr : std::strchr(kBase64Url, letter);
    if (found == nullptr) return std::nullopt;
    bits = bits << 6 | static_cast<unsigned>(found - kBase64Url);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    digest[done++] = static_cast<uint8_t>(bits >> count);
  }
  return Base64Url(digest) == text ? std::optional(digest) : std::nullopt;
}

bool IsBase32(const std::string& text, size_t letters) {
  return text.size() == letters && text.find_first_not_of(kBase32) == std::string::npos;
}

// Of letters, digits and what addresses have: it stands in messages and a resolver gets it.
bool IsHost(const std::string& host) {
  return std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return c < 0x80 && c != 0 && (std::isalnum(c) != 0 || std::strchr(".-_:%", c) != nullptr);
  });
}

std::array<Secret, kParts> Split(const std::string& text) {
  std::array<Secret, kParts> parts;
  size_t begin = 0;
  for (size_t i = 0; i < kParts; ++i) {
    const size_t end = i + 1 < kParts ? text.find('/', begin) : text.size();
    parts[i] = Secret(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

StatusOr<JoinToken> ParseToken(const std::string& text) {
  static constexpr char kBlanks[] = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return InvalidArgument("the token is empty");
  const Secret whole(text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin));
  const auto bad = [](const std::string& why) {
    return InvalidArgument(
        "the token {}; expected the whole line that `ringctl token create` printed, "
        "rm1/HOST:PORT/AUTHORITY/ID/SECRET",
        why);
  };
  if (whole.text().size() > kMaxTokenBytes) return bad("is too long");
  if (std::count(whole.text().begin(), whole.text().end(), '/') != kParts - 1) {
    return bad(fmt::format("does not have {} parts", kParts));
  }
  std::array<Secret, kParts> parts = Split(whole.text());
  if (parts[0].text() != kVersion) return bad("is of another version than rm1");
  // ParseAddress's own words repeat what it was given, which may be a secret in the wrong place.
  const auto address = ParseAddress(parts[1].text(), "token");
  if (!address.ok() || address->port == 0 || !IsHost(address->host)) {
    return bad("has no address in its second part");
  }
  const auto authority = DigestOf(parts[2].text());
  if (!authority) {
    return bad(fmt::format("has no hash of {} letters in its third part", kHashLetters));
  }
  if (!IsBase32(parts[3].text(), kTokenIdLetters)) {
    return bad(fmt::format("has no id of {} letters in its fourth part", kTokenIdLetters));
  }
  if (!IsBase32(parts[4].text(), kTokenSecretLetters)) {
    return bad(fmt::format("has no secret of {} letters in its last part: is its end cut off?",
                           kTokenSecretLetters));
  }
  return JoinToken{*address, *authority, parts[3].text(), std::move(parts[4])};
}

Secret Format(const JoinToken& token) {
  return Secret(fmt::format("{}/{}/{}/{}/{}", kVersion, token.coordinator.ToString(),
                            Base64Url(token.authority), token.id, token.secret.text()));
}

Secret RandomBase32(size_t letters) {
  std::string text(letters, '\0');
  auto* const bytes = reinterpret_cast<unsigned char*>(text.data());
  RING_CHECK(RAND_bytes(bytes, static_cast<int>(letters)) == 1, "the system gives random numbers");
  for (char& letter : text) letter = kBase32[letter & 31];
  return Secret(std::move(text));
}

}  // namespace ringmaster::pki
