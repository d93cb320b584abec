from django.db import migrations, models


class Migration(migrations.Migration):
    """Columns of a bundle that its pod fetches; rows of before have no token.

    The database has the defaults too: code that does not know the columns goes on writing rows.
    """

    dependencies = [("runner_sessions", "0001_initial")]

    operations = [
        migrations.AddField(
            "bundle", "token_sealed", models.BinaryField(blank=True, default=b"", db_default=b"")
        ),
        migrations.AddField(
            "bundle",
            "claim",
            models.CharField(blank=True, default="", db_default="", max_length=32),
        ),
        migrations.AddField("bundle", "claimed_at", models.DateTimeField(blank=True, null=True)),
    ]
