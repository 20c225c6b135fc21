#include <catch2/catch.hpp>
#include <fstream>
#include <map>

#include "tests/support/temporary_folder.h"
#include "worker/fetch/s3_credentials.h"
#include "worker/fetch/s3_listing.h"
#include "worker/fetch/s3_place.h"

namespace ringmaster::worker {
namespace {

std::string PageError(const std::string& xml) {
  const auto page = ParseS3Page(xml);
  if (page.ok()) return "valid";
  CHECK(page.status().code() == absl::StatusCode::kInvalidArgument);
  return Message(page.status());
}

std::string ListOf(const std::string& inside) {
  return "<ListBucketResult><IsTruncated>false</IsTruncated>" + inside + "</ListBucketResult>";
}

TEST_CASE("S3 lists: keys are decoded, what is unknown is passed over") {
  const auto page = ParseS3Page(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://x/\">"
      "<Name>b</Name><Empty/><IsTruncated>true</IsTruncated>\n"
      "<Contents><Key>a &amp; &lt;b&gt; &#252;&#x20ac;&#x1F600; &apos;&quot;</Key><Size>12</Size>"
      "<ETag>&quot;e&quot;</ETag><Owner><ID>x</ID></Owner></Contents>"
      "<Contents><Key>c</Key><Size>0</Size></Contents>"
      "<CommonPrefixes><Prefix>p</Prefix></CommonPrefixes>"
      "<NextContinuationToken>t=</NextContinuationToken></ListBucketResult>\n");
  REQUIRE(page.ok());
  REQUIRE(page->objects.size() == 2);
  CHECK(page->objects[0].key == "a & <b> ü€😀 '\"");
  CHECK(page->objects[0].bytes == 12);
  CHECK(page->objects[0].etag == "\"e\"");
  CHECK(page->objects[1].etag.empty());
  CHECK(page->next == "t=");
}

TEST_CASE("S3 lists: nothing is expanded, and nothing is deep") {
  CHECK(PageError("<!DOCTYPE x>" + ListOf("")).find("a DOCTYPE") != std::string::npos);
  CHECK(PageError(ListOf("<!-- -->")).find("a comment") != std::string::npos);
  CHECK(PageError(ListOf("<![CDATA[x]]>")).find("CDATA") != std::string::npos);
  CHECK(PageError(ListOf("<?x y?>")).find("a processing instruction") != std::string::npos);
  for (const char* entity : {"&a;", "&", "&;", "&#;", "&#x;", "&#0;", "&#x110000;", "&#xd800;",
                             "&#1x;", "&#-1;", "&#99999999999;", "&quot"}) {
    INFO(entity);
    CHECK(PageError(ListOf(std::string("<x>") + entity + "</x>")).find("an entity that is none") !=
          std::string::npos);
  }
  CHECK(PageError(ListOf("<a><a><a><a><a><a><a><a>")).find("too deep") != std::string::npos);
}

TEST_CASE("S3 lists: one shape and no other") {
  CHECK(PageError("").find("it ends inside of an element") != std::string::npos);
  CHECK(PageError("<Error/>").find("<Error> where <ListBucketResult>") != std::string::npos);
  CHECK(PageError("x" + ListOf("")).find("text outside") != std::string::npos);
  CHECK(PageError(ListOf("") + ListOf("")).find("a second element") != std::string::npos);
  CHECK(PageError(ListOf("</x>")).find("not open") != std::string::npos);
  CHECK(PageError(ListOf("<x").substr(0, 60)).find("a tag without its end") != std::string::npos);
  CHECK(PageError(ListOf("<a b>c</a>")) == "valid");
  CHECK(PageError(ListOf("<>x</>")).find("no name") != std::string::npos);
  CHECK(PageError("<ListBucketResult></ListBucketResult>") == "IsTruncated is missing");
  CHECK(PageError(ListOf("<IsTruncated>false</IsTruncated>")) == "IsTruncated is there twice");
  CHECK(PageError(ListOf("<Contents><Key>a</Key></Contents>")) == "object 1 lacks Key or Size");
  const auto object = [](const std::string& size) {
    return ListOf("<Contents><Key>a</Key><Size>" + size + "</Size></Contents>");
  };
  CHECK(PageError(object("9223372036854775807")) == "valid");
  for (const char* size : {"9223372036854775808", "99999999999999999999", "-1", "", "1x", " 1"}) {
    INFO(size);
    CHECK(PageError(object(size)).find("Size of object 1 is") != std::string::npos);
  }
  CHECK(PageError(ListOf("<Contents><Key>a</Key><Key>b</Key><Size>1</Size></Contents>")) ==
        "Key is there twice");
}

TEST_CASE("S3 errors: the code alone, if it is a word") {
  CHECK(S3ErrorCode("<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>"
                    "<AWSAccessKeyId>AKID</AWSAccessKeyId></Error>") == "AccessDenied");
  CHECK(S3ErrorCode("<Error><Code>two words</Code></Error>").empty());
  CHECK(S3ErrorCode("<html><Code>x</Code></html>").empty());
  CHECK(S3ErrorCode("not found").empty());
}

StatusOr<S3Access> AccessOf(const std::map<std::string, std::string>& variables) {
  return FindS3Access([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

TEST_CASE("S3 keys: environment first, then a file's profile, else none") {
  const TemporaryFolder folder;
  const std::string file = std::string(folder.path()) + "/keys";
  std::ofstream(file) << "; comment\n[default]\naws_access_key_id = ID0\n"
                         "aws_secret_access_key = SECRET0\n\n[ p ]\n#aws_session_token = no\n"
                         "aws_access_key_id=ID1\naws_secret_access_key=SE=CRET/1+\n"
                         "aws_session_token = TOKEN1\nregion = x\n[half]\naws_access_key_id=ID2\n"
                         "[blank]\naws_access_key_id=I D\naws_secret_access_key=S\n";
  const auto environment = AccessOf({{"AWS_ACCESS_KEY_ID", "ID"},
                                     {"AWS_SECRET_ACCESS_KEY", "SECRET"},
                                     {"AWS_SHARED_CREDENTIALS_FILE", file}});
  REQUIRE(environment.ok());
  CHECK(environment->keys->key_id == "ID");
  CHECK(environment->keys->token.empty());
  CHECK(environment->words == "signed with the keys of the environment (AWS_ACCESS_KEY_ID)");
  const auto first = AccessOf({{"AWS_SHARED_CREDENTIALS_FILE", file}});
  REQUIRE(first.ok());
  CHECK(first->keys->secret == "SECRET0");
  const auto profile = AccessOf({{"AWS_SHARED_CREDENTIALS_FILE", file}, {"AWS_PROFILE", "p"}});
  REQUIRE(profile.ok());
  CHECK(profile->keys->key_id == "ID1");
  CHECK(profile->keys->secret == "SE=CRET/1+");
  CHECK(profile->keys->token == "TOKEN1");
  CHECK(profile->words == "signed with the keys of profile p of " + file);
  const auto none = AccessOf({{"HOME", folder.path()}});
  REQUIRE(none.ok());
  CHECK_FALSE(none->keys);
  CHECK(none->words.find("not signed, since there are no keys") == 0);

  const auto refused = [&](std::map<std::string, std::string> variables) {
    const auto access = AccessOf(variables);
    REQUIRE_FALSE(access.ok());
    CHECK(access.status().code() == absl::StatusCode::kFailedPrecondition);
    return Message(access.status());
  };
  CHECK(refused({{"AWS_ACCESS_KEY_ID", "ID"}}).find("the secret is missing") != std::string::npos);
  CHECK(refused({{"AWS_SHARED_CREDENTIALS_FILE", file}, {"AWS_PROFILE", "half"}})
            .find("profile half of " + file) == 0);
  CHECK(refused({{"AWS_SHARED_CREDENTIALS_FILE", file}, {"AWS_PROFILE", "blank"}})
            .find("has blanks") != std::string::npos);
  CHECK(refused({{"AWS_SHARED_CREDENTIALS_FILE", file}, {"AWS_PROFILE", "q"}})
            .find("has no profile q") != std::string::npos);
  CHECK(refused({{"AWS_SHARED_CREDENTIALS_FILE", file + "x"}}).find("cannot be read") !=
        std::string::npos);
}

std::string UrlOfKey(const std::string& url, const S3Options& options) {
  const auto parsed = data::ParseDataUrl(url);
  REQUIRE(parsed.ok());
  const auto place = MakeS3Place(*parsed, options, [](const char*) { return std::string(); });
  return place.ok() ? (*place)->RequestOf("k +").url : Message(place.status());
}

TEST_CASE("S3 addresses: a host of its own at Amazon's, a path elsewhere") {
  CHECK(UrlOfKey("s3://bucket/p/", {}) == "https://bucket.s3.us-east-1.amazonaws.com/p/k%20%2B");
  CHECK(UrlOfKey("s3://my.bucket/", {"", "eu-west-1"}) ==
        "https://s3.eu-west-1.amazonaws.com/my.bucket/k%20%2B");
  CHECK(UrlOfKey("s3://bucket/", {"", "cn-north-1"}) ==
        "https://bucket.s3.cn-north-1.amazonaws.com.cn/k%20%2B");
  CHECK(UrlOfKey("s3://bucket/p/", {"https://minio:9000/", ""}) ==
        "https://minio:9000/bucket/p/k%20%2B");
  CHECK(UrlOfKey("s3://bucket/one.npz", {}) == "https://bucket.s3.us-east-1.amazonaws.com/one.npz");
  for (const char* endpoint :
       {"minio:9000", "ftp://minio", "https://minio/path", "s3://bucket", "https://me:pw@minio"}) {
    INFO(endpoint);
    CHECK(Message(CheckS3Options({endpoint, ""})).find("--s3-endpoint") == 0);
  }
  CHECK(Message(CheckS3Options({"", "eu west"})).find("--s3-region") == 0);
}

}  // namespace
}  // namespace ringmaster::worker
