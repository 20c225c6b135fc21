#include "common/ticket.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "common/check.h"
#include "common/sha256.h"

namespace ringmaster {
namespace {

unsigned char* Bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

}  // namespace

std::string RandomTicket() {
  std::string ticket(kTicketBytes, '\0');
  RING_CHECK(RAND_bytes(Bytes(ticket), static_cast<int>(ticket.size())) == 1,
             "the system gives random numbers");
  return ticket;
}

std::string RandomName() { return Hex(RandomTicket()); }

bool SameTicket(const std::string& a, const std::string& b) {
  if (a.size() != kTicketBytes || b.size() != kTicketBytes) return false;
  return CRYPTO_memcmp(a.data(), b.data(), kTicketBytes) == 0;
}

std::string TicketFor(const std::string& secret, const std::string& text) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const auto* made = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), bytes,
                          text.size(), Bytes(digest), nullptr);
  RING_CHECK(made != nullptr, "HMAC-SHA-256 is there");
  return digest.substr(0, kTicketBytes);
}

}  // namespace ringmaster
