# The public names of a2a_trust.signing.
from a2a_trust.signing.forms import Form as Form
from a2a_trust.signing.sign import SignedCard as SignedCard
from a2a_trust.signing.sign import sign_card as sign_card
from a2a_trust.signing.verifier import CardVerifier as CardVerifier
from a2a_trust.signing.verify import Coverage as Coverage
from a2a_trust.signing.verify import VerifiedCard as VerifiedCard
from a2a_trust.signing.verify import verify_card as verify_card
