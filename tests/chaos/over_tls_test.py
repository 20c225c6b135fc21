"""The same bytes with TLS on: clusters of other shapes, the kill matrix and a storm, off loopback and with certificates.
What they are compared with comes from loopback, without TLS."""
import training  # noqa: F401, I001  first: it finds tests/integration
import cluster
import exactness
import exactness_test
import kill_matrix_test
import private
import storms_test


def setUpModule():
    private.enter()
    switch = private.Switch()
    KillMatrixOverTlsTest.switch = StormOverTlsTest.switch = switch


class ExactnessOverTlsTest(exactness_test.ExactnessTest):
    def run_everywhere(self, **policies):
        results = {"without TLS": self.run_on(exactness.CLUSTERS["2x2"], {
            label: exactness_test.spec(2, **changes) for label, changes in policies.items()})}
        self.host = private.Switch.ADDRESS
        return {**results, **super().run_everywhere(**policies)}


class KillMatrixOverTlsTest(kill_matrix_test.KillMatrixTest):
    pass


class StormOverTlsTest(storms_test.StormsTest):
    def test_one_storm(self):
        self.run_storms(1, 10)


if __name__ == "__main__":
    cluster.main(at_once=2)
