#include "common/ticket.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringmaster {
namespace {

TEST_CASE("Ticket: each is another one, and so is each name") {
  const std::string ticket = RandomTicket();
  CHECK(ticket.size() == kTicketBytes);
  CHECK(ticket != RandomTicket());
  const std::string name = RandomName();
  CHECK(name.size() == 2 * kTicketBytes);
  CHECK(name.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(name != RandomName());
}

TEST_CASE("Ticket: only the same one is the same, and what is none is not even that") {
  const std::string ticket = RandomTicket();
  CHECK(SameTicket(ticket, std::string(ticket)));
  for (size_t i = 0; i < kTicketBytes; ++i) {
    std::string other = ticket;
    other[i] = static_cast<char>(other[i] ^ 1);
    CHECK_FALSE(SameTicket(ticket, other));
  }
  for (const std::string& none : {std::string(), ticket.substr(1), ticket + "0"}) {
    CHECK_FALSE(SameTicket(none, ticket));
    CHECK_FALSE(SameTicket(none, none));
  }
}

TEST_CASE("Ticket: a text's depends on the text and on the secret alone") {
  const std::string first = TicketFor("secret", "a generation");
  CHECK(first.size() == kTicketBytes);
  CHECK(first == TicketFor("secret", "a generation"));
  CHECK(first != TicketFor("secret", "another one"));
  CHECK(first != TicketFor("Secret", "a generation"));
}

}  // namespace
}  // namespace ringmaster
